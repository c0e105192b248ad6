"""The pages in a real browser: accessible, light, complete without JavaScript, and deaf to what they show."""

import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, sync_playwright

from tests.support.api.commands import Commands, copied
from tests.support.api.serving import Served, service
from tests.support.registry.digits import DIGITS, locked, model, request, written

CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
MOST_BYTES, MOST_REQUESTS = 60 << 10, 6
MOST_PAGES = 1000
TOGETHER = 6
"""Pages of which each waits for half a second without a request, all of them at once."""
HOSTILE = '"><svg onload="document.title=1"><script>document.title=2</script>javascript:alert(1)'
CARD = f"""---
license: MIT
---
# A card

<script>document.title = 3</script> [link](javascript:document.title=4) ![picture](https://example.org/p.png)

{HOSTILE}

| a | b |
| - | - |
| 1 | 2 |
"""

TYPED = {
    "framework": "onnxruntime@9.0.0",
    "dataset": "digits",
    "min_queries": "64",
    "min_duration": "100ms",
}
MOST_STEPS = 120
SEEN = """selector => {
    const element = document.activeElement, style = getComputedStyle(element), box = element.getBoundingClientRect();
    return {
        what: element.outerHTML.slice(0, 200),
        is_wanted: element.matches(selector),
        is_outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
        is_inside: box.width > 0 && box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth,
    };
}"""
"""What the element with the focus is, and whether a reader sees that it has the focus."""
WATCH_SEEDS = """() => {
    window.seeds = [];
    new MutationObserver(() => {
        const seed = document.querySelector("#preview").textContent.match(/seed: ([0-9]+)/)?.[1];
        if (seed !== seeds.at(-1)) seeds.push(seed);
    }).observe(document.querySelector("main"), { childList: true, subtree: true });
}"""
"""Keep the seeds of the previews that the page shows from now on."""
LONGEST = {
    "schema": 1,
    "kind": "framework",
    "name": "n" * 63 + "/" + "m" * 64,
    "version": "1.0.0-" + "a" * 122,
    "license": "l" * 200,
    "description": "d" * 500,
    "tags": ["t" * 32],
    "predictor": "onnxruntime",
    "distributions": ["onnxruntime"],
}

MATRIX = {
    "schema": 1,
    "kind": "matrix",
    "name": "formats",
    "request": {
        key: value for key, value in request("hostile").items() if key not in ("schema", "kind", "name", "model")
    },
    "axes": {"model": {name: {"name": name, "version": "^7"} for name in ("hostile", "digits")}},
    "seed": 1,
}
"""A matrix whose cells do not resolve, so that it queues nothing."""

pytestmark = [
    pytest.mark.engine,
    pytest.mark.image,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]


@pytest.fixture(scope="module")
def evaluated(registry: Commands, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A registry with a dataset, two models of which one is hostile in every text, and two runs; the ids of these."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "card.md").write_text(CARD)
    hostile = model("hostile") | {"description": HOSTILE, "tags": ["onload"]}
    hostile["files"] = [*hostile["files"], {"path": "card.md", "role": "card", "source": str(folder / "card.md")}]
    longest = written(folder / "longest.yaml", LONGEST)
    registry.done("publish", DIGITS / "dataset.yaml", written(folder / "hostile.yaml", hostile), longest)
    lock = locked(registry, folder, request("hostile"))
    runs = [registry.done("run", lock, "--isolation", "process")["run"] for _ in range(2)]
    registry.done("matrix", "submit", written(folder / "matrix.yaml", MATRIX))
    registry.done("yank", "image/litert-cpu@1.0.0", "--reason", HOSTILE)
    return {"first": runs[0], "second": runs[1]}


@pytest.fixture(scope="module")
def site(registry: Commands, evaluated: dict[str, str]) -> Iterator[Served]:
    assert evaluated
    with service(registry.registry) as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def crawled(site: Served) -> dict[str, httpx.Response]:
    """What links lead to, from the front page on."""
    return crawl(site)


@pytest.fixture(scope="module")
def paths(crawled: dict[str, httpx.Response]) -> list[str]:
    """Every page that links lead to, from the front page on."""
    return [path for path, answer in crawled.items() if answer.headers["content-type"].startswith("text/html")]


def crawl(site: Served) -> dict[str, httpx.Response]:
    """Follow every link within the site; the links between states of the form, which have no end, once from each page.

    A state of the form that another state leads to is fetched, but its own links to further states are not followed.
    """
    found: dict[str, httpx.Response] = {}
    left, changed = ["/"], set[str]()
    with httpx.Client(base_url=site.url, headers={"accept": "text/html"}, timeout=60) as client:
        while left:
            path = left.pop(0)
            if path in found:
                continue
            if len(found) == MOST_PAGES:
                pytest.fail(f"more than {MOST_PAGES} pages; the next ones: {left[:20]}")
            found[path] = answer = client.get(path)
            if answer.headers["content-type"].startswith("text/html"):
                for link in re.findall(r'(?:href|src)="([^"#]*)', answer.text):
                    there = urlsplit(urljoin(f"{site.url}{path}", link.replace("&amp;", "&")))
                    next_path = there.path + (f"?{there.query}" if there.query else "")
                    if there.netloc != urlsplit(site.url).netloc or (is_state(next_path) and path in changed):
                        continue
                    if is_state(path) and is_state(next_path) and next_path not in left:
                        changed.add(next_path)
                    left.append(next_path)
    return found


def is_state(path: str) -> bool:
    """Whether a path is that of a filled form."""
    return path.startswith("/new?")


def shape(path: str) -> str:
    """The kind of a page: its path without names and numbers."""
    return re.sub(
        r"(?<=/)(?:[0-9a-z]{26}|sha256:[0-9a-f]+.*|(?<=model/|image/).*|(?<=dataset/).*|(?<=framework/).*)", "x", path
    ).partition("?")[0]


def one_of_each(paths: list[str]) -> list[str]:
    return list({shape(path): path for path in reversed(paths)}.values())


def test_every_link_leads_to_something_and_no_page_has_anything_inline(
    site: Served, crawled: dict[str, httpx.Response]
) -> None:
    found = crawled
    assert len(found) > 20
    for path, answer in found.items():
        assert answer.status_code < 400, path
        assert answer.headers["x-content-type-options"] == "nosniff"
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        assert "default-src 'none'" in answer.headers["content-security-policy"], path
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert not re.search(r"<[^>]*\sstyle=", answer.text), path
        assert not re.search(r"<[^>]*\son[a-z]+=", re.sub(r"&#34;|&quot;|&lt;", "", answer.text)), path
        assert "<script>" not in answer.text, path
        assert all(
            urlsplit(link).netloc in ("", urlsplit(site.url).netloc)
            for link in re.findall(r'<(?:link|script|img)[^>]*(?:href|src)="([^"]*)', answer.text)
            if not link.startswith("data:")
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 1100])
def test_every_page_is_accessible_and_fits(
    browser: Browser, site: Served, paths: list[str], scheme: Literal["light", "dark"], width: int
) -> None:
    context = browser.new_context(
        bypass_csp=True, color_scheme=scheme, viewport={"width": width, "height": 900}, reduced_motion="reduce"
    )
    page = context.new_page()
    for path in one_of_each(paths):
        page.goto(site.url + path)
        violations = Axe().run(page).response["violations"]
        told = [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in violations]
        assert told == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    context.close()


def test_the_longest_names_fit_a_narrow_screen(browser: Browser, site: Served) -> None:
    context = browser.new_context(viewport={"width": 320, "height": 900})
    page = context.new_page()
    target = f"framework/{LONGEST['name']}@{LONGEST['version']}"
    for path in (f"/{target}", "/artifacts?kind=framework", f"/yank?target={target}", "/audit", f"/{target}x"):
        page.goto(site.url + path)
        assert page.get_by_text(str(LONGEST["version"])).count(), path
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
    context.close()


def test_no_page_breaks_its_own_policy_or_runs_what_it_shows(browser: Browser, site: Served, paths: list[str]) -> None:
    context, page, told = watched(browser)
    for path in paths:
        page.goto(site.url + path)
        assert page.title().endswith("· benchlock"), path
    assert told == []
    context.close()


def watched(browser: Browser) -> tuple[BrowserContext, Page, list[str]]:
    """A page, and what it complains about: violations of the policy, errors, and requests to other hosts."""
    context = browser.new_context()
    page = context.new_page()
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on(
        "request", lambda asked: None if "127.0.0.1" in asked.url or asked.url == "data:," else told.append(asked.url)
    )
    return context, page, told


def test_pages_say_the_same_without_javascript(browser: Browser, site: Served, paths: list[str]) -> None:
    texts = []
    for is_on in (True, False):
        context = browser.new_context(java_script_enabled=is_on)
        page = context.new_page()
        found = {}
        for path in one_of_each(paths):
            page.goto(site.url + path)
            found[path] = "".join(page.locator("main").text_content().split()).replace("Copy", "")  # type: ignore[union-attr]
        texts.append(found)
        context.close()
    assert texts[0] == texts[1]


def batched(paths: list[str], count: int) -> Iterator[list[str]]:
    """So many at a time."""
    return (paths[start : start + count] for start in range(0, len(paths), count))


def note(asked: list[Request], one: Request) -> None:
    asked.append(one)


def test_every_page_is_light(browser: Browser, site: Served, paths: list[str]) -> None:
    for some in batched(one_of_each(paths), TOGETHER):
        opened = list[tuple[str, Page, list[Request]]]()
        for path in some:
            page, asked = browser.new_context().new_page(), list[Request]()
            page.on("requestfinished", partial(note, asked))
            page.goto(site.url + path)
            opened.append((path, page, asked))
        for path, page, asked in opened:
            page.wait_for_load_state("networkidle")
            sizes = {one.url: one.sizes() for one in asked if not one.url.startswith("data:")}
            total = sum(size["responseBodySize"] + size["responseHeadersSize"] for size in sizes.values())
            assert total <= MOST_BYTES, (path, sizes)
            assert len(sizes) <= MOST_REQUESTS, (path, sizes)
            page.context.close()


def test_the_keyboard_suffices(browser: Browser, site: Served, evaluated: dict[str, str]) -> None:
    context, page, told = watched(browser)
    page.goto(site.url)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("/")
    page.keyboard.type("hostile")
    page.keyboard.press("Enter")
    page.wait_for_url("**/artifacts?search=hostile")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/model/hostile@1.0.0")
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()
    page.keyboard.press("Escape")
    page.goto(f"{site.url}/runs")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{evaluated['second'].removeprefix('run/')}")
    assert told == []
    context.close()


@pytest.mark.parametrize("has_script", [True, False])
def test_a_model_is_evaluated_from_its_page_with_and_without_javascript(
    browser: Browser, site: Served, has_script: bool
) -> None:
    context = browser.new_context(java_script_enabled=has_script)
    page = context.new_page()
    page.goto(f"{site.url}/model/hostile")
    page.get_by_role("link", name="Evaluate", exact=True).click()
    page.get_by_label("Dataset", exact=False).first.fill("digits")
    page.get_by_label("Framework", exact=False).first.fill("onnxruntime@9.0.0")
    show(page, has_script=has_script)
    page.get_by_label("Split").select_option("test")
    assert page.locator("input[name=metrics][value=peak_qps]").is_disabled()
    page.locator("select[name=scenario]").select_option("server")
    show(page, has_script=has_script)
    page.locator("input[name=metrics][value=peak_qps]:enabled").wait_for(state="attached")
    page.locator("select[name=scenario]").select_option("single_stream")
    show(page, has_script=has_script)
    page.locator("input[name=metrics][value=peak_qps]:disabled").wait_for(state="attached")
    fix = page.locator("#preview a", has_text="framework/onnxruntime")
    fix.first.wait_for()
    assert "framework/onnxruntime 1.31.1: outside 9.0.0" in page.locator("#preview").inner_text()
    fix.first.click()
    page.get_by_role("button", name="Lock", exact=True).wait_for()
    page.get_by_role("button", name="Lock", exact=True).click()
    page.wait_for_url("**/locks/sha256:*")
    lock = page.url.rpartition("/")[2]
    assert f" run {lock}" in page.inner_text("main")
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_url("**/jobs/*")
    assert f" run {lock}" in page.inner_text("main")  # no worker is there
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("cancelled").first.wait_for()
    context.close()


def test_a_late_answer_never_overwrites_a_newer_one(browser: Browser, site: Served) -> None:
    """The answer to the first text comes after that to the second; the third shows that the page has handled it."""
    context, page, told = watched(browser)
    late: list[Route] = []

    def hold(route: Route) -> None:
        late.append(route)

    page.goto(f"{site.url}/new?model=hostile&dataset=digits&split=test")
    page.route("**/new?*seed=11*", hold)
    page.evaluate(WATCH_SEEDS)
    seed = page.locator("form.fields input[name=seed]")
    with page.expect_request("**/new?*seed=11*"):
        seed.fill("11")
    with page.expect_response("**/new?*seed=22*"):
        seed.fill("22")
    page.locator("#preview", has_text="seed: 22").wait_for()
    with page.expect_response("**/new?*seed=11*") as answer:
        late[0].continue_()
    assert "seed: 11" in answer.value.text()
    seed.fill("33")
    page.locator("#preview", has_text="seed: 33").wait_for()
    assert page.locator("#preview .copy button", has_text="Copy").count() == 2  # request.yaml and the command
    assert page.evaluate("seeds") == ["22", "33"]
    assert parse_qs(urlsplit(page.url).query)["seed"] == ["33"]
    assert told == []
    context.close()


def show(page: Page, *, has_script: bool) -> None:
    """Let the page resolve: by itself after typing, or by the button."""
    if not has_script:
        page.get_by_role("button", name="Preview").click()


def focus(page: Page, selector: str) -> None:
    """Press Tab until the element has the focus, which must be visible at each step."""
    for _ in range(MOST_STEPS):
        page.keyboard.press("Tab")
        seen = page.evaluate(SEEN, selector)
        for _ in range(500):  # the browser scrolls it into view with its next frame
            if seen["is_inside"]:
                break
            page.wait_for_timeout(10)
            seen = page.evaluate(SEEN, selector)
        assert seen["is_outlined"], (page.url, seen)
        assert seen["is_inside"], (page.url, seen)
        if seen["is_wanted"]:
            return
    pytest.fail(f"{MOST_STEPS} times Tab do not lead to {selector} on {page.url}")


def press(page: Page, selector: str, target: str) -> None:
    """Go to a link or a button and press Enter, which leads to ``target``."""
    focus(page, selector)
    with page.expect_navigation(url=target):
        page.keyboard.press("Enter")
    assert page.title().endswith("· benchlock")


def queue_by_keyboard(page: Page, *, has_script: bool) -> None:
    """Go from the front page to a job: search, model, conflict, its fix, lock, run as a process."""
    if has_script:
        page.keyboard.press("/")
    else:
        focus(page, "input[type=search]")
    page.keyboard.type("hostile")
    with page.expect_navigation(url="**/artifacts?search=hostile"):
        page.keyboard.press("Enter")
    if has_script:
        page.keyboard.press("j")
        assert page.evaluate(SEEN, "main tbody a")["is_wanted"]
        with page.expect_navigation(url="**/model/hostile@1.0.0"):
            page.keyboard.press("Enter")
    else:
        press(page, "main tbody a", "**/model/hostile@1.0.0")
    press(page, "main a.button", "**/new?model=*")
    for name, text in TYPED.items():
        if name == "min_queries":  # after the split, whose choices come with the dataset
            if not has_script:
                press(page, "main form.fields button", "**/new?*dataset=digits*")
            page.locator("select[name=split] option[value=test]").wait_for(state="attached")
            focus(page, "select[name=split]")
            page.keyboard.type("test")
        focus(page, f"input[name={name}]")
        page.keyboard.type(text)
    if not has_script:
        press(page, "main form.fields button", "**/new?*split=test*")
    page.locator("#preview ul a").first.wait_for()
    assert "framework/onnxruntime 1.31.1: outside 9.0.0" in page.inner_text("#preview")
    press(page, '#preview ul a[href*="framework"]', "**/new?*")
    press(page, "#preview form button", "**/locks/sha256:*")
    focus(page, "main select[name=isolation]")
    page.keyboard.type("process")
    press(page, 'main form[action="/jobs"] button', "**/jobs/*")
    assert "queued" in page.inner_text("main")


def compare_by_keyboard(page: Page, registry: Commands, other: str) -> None:
    """Go from a run to its comparison with another one, whose verdict is that of the command."""
    assert page.get_by_role("heading", name="Results").is_visible()
    focus(page, "main input[list=others]")
    page.keyboard.type(other)
    with page.expect_navigation(url="**/compare?**"):
        page.keyboard.press("Enter")
    ids = parse_qs(urlsplit(page.url).query)["run"]
    reasons = registry.done("compare", "--force", *ids)["reasons"]
    assert page.get_by_role("note").first.get_by_role("listitem").all_inner_texts() == reasons != []
    press(page, 'main p a[href*="anyway"]', "**/compare?**anyway=1")
    assert page.get_by_role("heading", name="Not comparable: Findings").is_visible()


def test_the_keyboard_leads_from_the_front_page_to_a_verdict(
    browser: Browser, site: Served, registry: Commands, evaluated: dict[str, str]
) -> None:
    """On a wide screen, and on a narrow one without JavaScript; a worker runs the first of the two equal locks."""
    for number, (has_script, width) in enumerate(((True, 1100), (False, 320))):
        context = browser.new_context(java_script_enabled=has_script, viewport={"width": width, "height": 900})
        page = context.new_page()
        page.goto(site.url)
        queue_by_keyboard(page, has_script=has_script)
        if number == 0:
            registry.done("worker", "--machine", "m1", "--processes", "--once")
            page.locator("main a.button").wait_for()
            press(page, "main a.button", "**/runs/*")
        else:
            press(page, 'main form[action$="/cancel"] button', "**/jobs/*")
            press(page, 'main a[href^="/locks/"]', "**/locks/sha256:*")
            press(page, 'main td a[href^="/runs/"]', "**/runs/*")
        compare_by_keyboard(page, registry, evaluated["first"])
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        context.close()


def test_tables_are_csv_with_the_numbers_of_the_twin(site: Served, evaluated: dict[str, str]) -> None:
    path = f"/runs/{evaluated['first'].removeprefix('run/')}"
    lines = httpx.get(f"{site.url}{path}?csv=metrics").text.splitlines()
    metrics = httpx.get(f"{site.url}/v1{path}").json()["end"]["metrics"]
    names = lines[0].split(",")
    for line, metric in zip(lines[1:], metrics, strict=True):
        row = dict(zip(names, line.split(","), strict=True))
        assert row["metric"] == metric["name"]
        assert float(row["value"]) == metric["value"]
        assert [float(row[end]) if row[end] else None for end in ("low", "high")] == list(
            metric["ci"].values() if isinstance(metric["ci"], dict) else metric["ci"]
        )


@pytest.mark.usefixtures("evaluated")
def test_a_reader_signs_in_with_a_token_and_out_again(browser: Browser, registry: Commands, tmp_path: Path) -> None:
    registry = copied(registry, tmp_path / "registry", registry.engine)  # the open service has the other
    secret = registry.done("token", "create", "reader", "--scope", "read")["secret"]
    with service(registry.registry, "--host", "127.0.0.1") as closed:
        context, page, _ = watched(browser)
        answer = page.goto(f"{closed.url}/runs?outcome=done")
        assert answer is not None
        assert answer.status == 401
        assert page.get_by_role("alert").count() == 0  # nobody did anything wrong yet
        assert "BENCHLOCK_TOKEN" not in page.inner_text("main")
        page.get_by_label("Token").fill("benchlock_nonsense")
        page.get_by_role("button", name="Sign in").click()
        assert page.get_by_role("heading", name="Sign in").is_visible()
        assert page.get_by_role("alert").is_visible()
        assert context.cookies() == []
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        assert page.url == f"{closed.url}/runs?outcome=done"
        assert page.get_by_role("heading", name="Runs").is_visible()
        (cookie,) = context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        page.get_by_role("button", name="Sign out").click()
        assert context.cookies() == []
        assert secret not in closed.log.read_text()
        context.close()


def test_a_form_of_another_page_changes_nothing(site: Served) -> None:
    for headers in ({}, {"origin": "http://127.0.0.1:1"}, {"origin": site.url, "sec-fetch-site": "cross-site"}):
        answer = httpx.post(f"{site.url}/sign-in", data={"token": "x", "next": "/"}, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
    answer = httpx.post(
        f"{site.url}/sign-in", data={"token": "x", "next": "//example.org"}, headers={"origin": site.url}
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_the_assets_never_change_under_their_name(site: Served) -> None:
    for path in re.findall(r'"(/assets/[^"]*)"', httpx.get(site.url).text):
        assert "immutable" in httpx.get(site.url + path).headers["cache-control"]
    assert httpx.get(f"{site.url}/assets/page-0000000000000000.js").status_code == 404
    assert not list(Path(__file__).parents[2].glob("api/web/assets/*.min.*"))
