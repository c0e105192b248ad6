"""The page of a new evaluation says what the resolver says, writes nothing by itself, and its buttons lock it."""

import re
from html import unescape
from urllib.parse import parse_qsl, urlencode

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.page import Viewer
from benchlock.api.web.pages.new_pages import make_new, write_request
from benchlock.api.web.rendering import render_page
from benchlock.registry.catalogue.catalogue_protocol import Provenance
from benchlock.registry.lock.lock_creation import explain_resolution
from benchlock.registry.manifests import Dataset
from benchlock.registry.requests.evaluation_request import parse_request, read_request
from benchlock.registry.requests.request_form import SCENARIOS, RequestFields, change_fields, write_document
from tests.api.http.conftest import Client
from tests.support.evaluator.queues import BOOT, facts, machine
from tests.support.registry.frameworks import publish_framework
from tests.support.resolution.hostile_locks import LockCase
from tests.support.resolution.variants import variant

GIVEN = {"model": "digits@^1.0", "dataset": "digits", "split": "test"}
OURS = {"sec-fetch-site": "same-origin"}
HTML = {"accept": "text/html"}


@pytest.fixture(autouse=True)
def published(registry: LocalRegistry) -> None:
    variant({}).publish(registry.catalogue, registry.store)


def ask(client: Client, **changed: str) -> str:
    answer = client.get("/new", params=GIVEN | changed, headers=HTML)
    assert answer.status_code == 200, answer.text
    return answer.text


def preview(page: str) -> str:
    return unescape(page.partition('id="preview"')[2])


def test_the_preview_says_which_versions_and_why(client: Client, registry: LocalRegistry) -> None:
    text = preview(ask(client))
    request = parse_request(write_request(registry, RequestFields(**GIVEN)), "request")
    resolution, reasons = explain_resolution(request, registry.catalogue)
    for value in resolution.describe().values():
        assert value in text
    assert {reason.kind for reason in reasons} == {"model", "dataset", "framework", "image"}
    for reason in reasons:
        assert all(line.text in text for line in reason.requirements)
    assert "Lock and queue" in text


def test_the_request_file_is_the_request_that_is_locked(client: Client, registry: LocalRegistry) -> None:
    shown = re.search(r"As request.yaml.*?<code>(.*?)</code>", preview(ask(client)), re.DOTALL)
    assert shown is not None
    request = read_request(shown[1], "request.yaml")
    answer = client.post("/locks", data=GIVEN, headers=OURS, follow_redirects=False)
    assert answer.status_code == 303
    (lock,) = registry.catalogue.locks()
    assert answer.headers["location"] == f"/locks/{lock.id}"
    assert lock.request == request.document


def test_nothing_is_stored_before_a_button(client: Client, registry: LocalRegistry) -> None:
    before = sorted(registry.home.rglob("*"))
    assert before
    ask(client)
    assert not list(registry.catalogue.locks())
    assert sorted(registry.home.rglob("*")) == before


def test_labels_that_disagree_are_said_on_the_page(client: Client, registry: LocalRegistry) -> None:
    labels = {"model": {"labels.txt": b"zero\none\ntwo\n"}, "dataset": {"labels.txt": b"two\none\nzero\n"}}
    LockCase("apart", (409,), labels).publish(registry)
    data = {"model": "apart", "dataset": "apart", "split": "test", "image": "apart"}
    refused = client.post("/v1/locks", json={"request": write_request(registry, RequestFields(**data))})
    assert refused.status_code == 409
    text = preview(ask(client, **data))
    assert all(line.strip() in text for line in refused.json()["detail"].split("\n"))
    assert "Lock and queue" not in text


def test_a_conflict_offers_its_smallest_changes_as_links_that_solve_it(client: Client) -> None:
    text = ask(client, model="digits@^9.0", seed="11")
    assert "Lock and queue" not in text
    links = re.findall(r'<li><a href="(/new\?[^"]*)">(.*?)</a>', text.partition("Smallest changes")[2])
    assert links
    for path, words in links:
        assert "seed=11" in path
        changed = client.get(unescape(path), headers=HTML).text
        assert "Lock and queue" in changed, words


@pytest.mark.parametrize(
    ("changed", "solved"),
    [
        ({"model": "digits@1.0"}, [{"model": f"digits@{form}"} for form in ("~1.0", "^1.0", "1.0.0")]),
        ({"dataset": "digits@1"}, [{"dataset": f"digits@{form}"} for form in ("^1", "1.0.0")]),
        ({"framework": "onnxruntime@1.31"}, [{"framework": f"onnxruntime@{form}"} for form in ("~1.31", "^1.31")]),
        ({"model": "digts@^1.0"}, [{"model": "digits@^1.0"}]),
        ({"split": "tst"}, [{"split": "test"}]),
        ({"metrics": "top1, latncy"}, [{"metrics": "top1, latency"}]),
        ({"scenario": "ofline"}, [{"scenario": "offline"}]),
        ({"trace": "modl"}, [{"trace": "model"}]),
    ],
)
def test_a_field_with_a_near_value_offers_it_as_a_link(
    client: Client, changed: dict[str, str], solved: list[dict[str, str]]
) -> None:
    text = ask(client, **changed, seed="11")
    links = re.findall(r'<li><a href="(/new\?[^"]*)">', text.partition("Smallest changes")[2])
    forms = [dict(parse_qsl(unescape(link).partition("?")[2])) for link in links]
    assert [GIVEN | {"seed": "11"} | form for form in solved] == forms[: len(solved)]
    for link in links[: len(solved)]:
        assert "Lock and queue" in client.get(unescape(link), headers=HTML).text


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"metrics": "top1, foo"}, "foo"),
        ({"scenario": "accuracy", "metrics": "latency"}, "accuracy"),
        ({"scenario": "nonsense"}, "scenario"),
        ({"model": "digts"}, "digits"),
        ({"model": "digits@soon"}, "soon"),
        ({"model": "A B"}, "A B"),
        ({"split": "train"}, "train"),
        ({"seed": "-1"}, "seed"),
        ({"cpus": "many"}, "cpus"),
        ({"framework": "litert"}, "requires framework/onnxruntime, not framework/litert"),
        ({"as_of": "yesterday"}, "yesterday"),
        ({"image": "nothing-like-it"}, "nothing-like-it"),
        ({"trace": "loud"}, "trace"),
    ],
)
def test_what_is_wrong_is_said_on_the_page(client: Client, changed: dict[str, str], words: str) -> None:
    text = preview(ask(client, **changed))
    notice = text.partition('class="notice bad"')[2].partition("</div>")[0]
    assert words in notice
    assert "Lock and queue" not in text


def options(page: str, field: str) -> dict[str, tuple[str, str]]:
    """The state and the words of each value of a field: of a select, a list of names, or check boxes."""
    part = re.search(rf'id="choices-{field}".*?</(?:label|details|fieldset)>', page, re.DOTALL)
    assert part is not None
    if field == "metrics":
        part = re.search(r'id="choices-metrics".*?</fieldset>', page, re.DOTALL)
        assert part is not None
        pattern = r'<input type="checkbox" name="metrics" value="([^"]*)"( checked| disabled|)>(.*?)</label>'
    elif "<select" in part[0]:
        pattern = r'<option value="([^"]+)"( selected| disabled|)>(.*?)</option>'
    else:
        rows = re.findall(r"<li><a ([^>]*)>(.*?)</a>(.*?)</li>", part[0])
        return {name: ("disabled" if "aria-disabled" in state else "", unescape(words)) for state, name, words in rows}
    return {value: (state.strip(), unescape(words)) for value, state, words in re.findall(pattern, part[0])}


def impossible(page: str, field: str) -> dict[str, str]:
    return {value: words for value, (state, words) in options(page, field).items() if state == "disabled"}


@pytest.fixture
def others(registry: LocalRegistry) -> None:
    """A framework without an image, an image for another device, and a dataset of sounds."""
    catalogue, store = registry.catalogue, registry.store
    publish_framework(catalogue, store, "litert", "1.0.0")
    hardware = {"os": "linux", "arch": "arm64", "device": "cuda12"}
    image = {"name": "ort-cuda", "platforms": ["linux/arm64/cuda12"]}
    variant({"image": image, "request": {"hardware": hardware}}).publish(catalogue, store, ("image",))
    (digits,) = (one for one in variant({}).manifests.values() if isinstance(one, Dataset))
    split = replace(digits.splits["test"], images=UNSET, labels=UNSET, index="labels.txt")
    sounds = replace(digits, name="sounds", format="wav-index", splits={"test": split})
    catalogue.publish(sounds, Provenance("", {}))


def test_metrics_are_disabled_with_the_words_of_their_checks(client: Client) -> None:
    page = ask(client)
    words = impossible(page, "metrics")
    assert options(page, "metrics")["latency_p99"][0] == ""
    assert "the scenario single_stream does not give the metric peak_qps" in words["peak_qps"]
    assert "the task image-classification does not give the metric map" in words["map"]
    assert "needs the price of the machine" in words["cost_per_million"]
    price = {"price_amount": "0.1", "price_currency": "EUR", "price_date": "2026-11-20", "price_source": "a list"}
    assert "cost_per_million" not in impossible(ask(client, **price), "metrics")
    bare = impossible(ask(client, split="bare"), "metrics")
    assert "top1 needs labels; the split bare has none" in bare["top1"]
    assert "latency" not in bare


@pytest.mark.usefixtures("others")
def test_choices_that_do_not_fit_are_disabled_with_the_words_of_their_checks(client: Client) -> None:
    page = ask(client, metrics="top1")
    assert "which cannot feed the input input of type image" in impossible(page, "dataset")["sounds"]
    assert "requires framework/onnxruntime, not framework/litert" in impossible(page, "framework")["litert"]
    assert list(impossible(page, "split")) == ["bare"]
    assert "top1 needs labels; the split bare has none" in impossible(page, "split")["bare"]
    assert "does not give the metric top1" not in str(impossible(page, "scenario"))
    assert "model/digits is for image-classification" in impossible(page, "task")["object-detection"]
    assert impossible(ask(client, framework="onnxruntime@9.0.0"), "split") == {}  # no split solves the conflict
    nowhere = impossible(ask(client, arch="amd64"), "device")
    assert list(nowhere) == ["cuda12"]
    assert "no available image provides framework/onnxruntime" in nowhere["cuda12"]
    assert "*/amd64/cuda12" in nowhere["cuda12"]
    assert list(impossible(ask(client, device="cpu"), "image")) == ["ort-cuda"]
    assert "needs a scenario that times calls" in impossible(ask(client, scenario="accuracy"), "trace")["full"]
    assert "accuracy" in impossible(ask(client, metrics="latency"), "scenario")["accuracy"]
    without_model = client.get("/new", headers=HTML).text
    assert "no published image provides framework/litert" in impossible(without_model, "framework")["litert"]
    unsplit = client.get("/new", params={"model": "digits"}, headers=HTML).text
    assert "does not give the metric miou" in impossible(unsplit, "metrics")["miou"]
    sounds = client.get("/new", params={"dataset": "sounds"}, headers=HTML).text
    assert "which cannot feed the input input of type image" in impossible(sounds, "model")["digits"]


@pytest.mark.usefixtures("others")
def test_what_is_possible_is_locked_and_what_is_not_is_refused(client: Client) -> None:
    """For each choice, the preview of the form with it has a problem exactly if the choice is disabled."""
    page = ask(client)
    for field in ("split", "os", "arch", "device", "scenario", "trace"):
        for value, (state, _) in options(page, field).items():
            assert ("Lock and queue" in ask(client, **{field: value})) == (state != "disabled"), (field, value)
    for kind in ("image", "dataset", "framework"):
        for name, (state, _) in options(page, kind).items():
            assert ("Lock and queue" in ask(client, **{kind: name})) == (state != "disabled"), (kind, name)


@pytest.mark.usefixtures("others")
def test_an_impossible_choice_in_the_address_stays_and_is_named(client: Client) -> None:
    state, words = options(ask(client, split="bare", metrics="top1"), "split")["bare"]
    assert (state, "top1 needs labels" in words) == ("selected", True)
    page = ask(client, split="bare", metrics="top1, foo", seed="11", device="tpu")
    assert options(page, "split")["bare"][0] == "selected"
    state, words = options(page, "metrics")["foo"]
    assert state == "checked"
    assert "unknown metric 'foo'" in words
    assert options(page, "device")["tpu"][0] == "selected"
    assert 'name="seed" value="11"' in page
    assert "unknown metric 'foo'" in preview(page)


@pytest.mark.parametrize(
    ("engine", "processes", "disabled"),
    [("Engine 27", True, {}), ("Engine 27", False, {"process"}), (None, True, {"container"})],
)
def test_isolations_that_no_worker_has_are_disabled_with_what_it_lacks(
    client: Client, registry: LocalRegistry, engine: str | None, processes: bool, disabled: set[str]
) -> None:
    queue = open_queue(registry)
    queue.enrol(machine(1), BOOT, facts(engine=engine, processes=processes))
    for page in (ask(client), client.get("/new", headers=HTML).text):
        words = impossible(page, "isolation")
        assert set(words) == set(disabled)
        assert all("m1: " in reason for reason in words.values())
        possible = [name for name in ("container", "process") if name not in disabled]
        assert f"chosen by the worker: {' or '.join(possible)}<" in page
    for isolation in ("container", "process"):
        data = GIVEN | {"isolation": isolation, "queue": "1"}
        job = client.post("/locks", data=data, headers=OURS, follow_redirects=False).headers["location"]
        assert client.get(f"/v1{job}/explanation").json()["blocked"] == (isolation in disabled)


def test_a_machine_with_more_is_enough_and_one_that_gets_no_jobs_is_not(
    client: Client, registry: LocalRegistry
) -> None:
    queue = open_queue(registry)
    queue.enrol(machine(1), BOOT, facts(engine=None))
    queue.enrol(machine(2), BOOT, facts())
    assert impossible(ask(client), "isolation") == {}
    queue.drain(machine(2), "its owner wants it")
    assert set(impossible(ask(client), "isolation")) == {"container"}


def test_without_a_worker_the_host_of_the_service_is_judged(client: Client) -> None:
    words = impossible(ask(client, arch="s390x"), "isolation") | impossible(ask(client, host_cpus="9999"), "isolation")
    assert set(words) == {"container", "process"}
    assert all("the host of this service: requires 9999 CPUs" in reason for reason in words.values())


def test_the_isolation_of_the_form_is_that_of_the_job_and_no_part_of_the_lock(
    client: Client, registry: LocalRegistry
) -> None:
    open_queue(registry).enrol(machine(1), BOOT, facts())
    page = ask(client, isolation="process")
    assert options(page, "isolation")["process"][0] == "selected"
    assert "--isolation process" in preview(page)
    data = GIVEN | {"isolation": "process"}
    path = client.post("/locks", data=data, headers=OURS, follow_redirects=False).headers["location"]
    (lock,) = registry.catalogue.locks()
    assert "isolation" not in lock.request
    assert '<option value="process" selected>' in client.get(path, headers=HTML).text
    assert "unknown isolation" in preview(ask(client, isolation="cage"))


def test_check_boxes_are_the_list_of_metrics(client: Client) -> None:
    answer = client.get("/new", params={**GIVEN, "metrics": ["top1", "latency"]}, headers=HTML)
    assert re.search(r"metrics:\s+- top1\s+- latency\s", preview(answer.text))
    assert 'name="metrics" value="top1, latency"' in preview(answer.text)


def test_the_usual_metrics_are_ticked_until_the_user_changes_them(client: Client) -> None:
    """A form that is sent as it is asks for the usual metrics of each next scenario."""

    def find_ticked(page: str) -> set[str]:
        return {name for name, (state, _) in options(page, "metrics").items() if state == "checked"}

    first = ask(client)
    usual = re.search(r'name="usual" value="([^"]*)"', first)
    assert usual is not None
    assert find_ticked(first) == set(usual[1].split(", ")) > {"top1"}
    sweep = ask(client, metrics=usual[1], usual=usual[1], scenario="batch_sweep")
    assert find_ticked(sweep) == find_ticked(ask(client, scenario="batch_sweep")) != find_ticked(first)
    assert "Lock and queue" in sweep
    assert find_ticked(ask(client, metrics="top1", usual=usual[1])) == {"top1"}


def test_an_empty_form_says_what_to_choose(client: Client) -> None:
    text = client.get("/new", headers=HTML).text
    assert "Choose a model and a split: bare, test." in text
    assert '<option value="digits">' in text


def test_the_only_possible_dataset_and_split_are_selected(client: Client, registry: LocalRegistry) -> None:
    def select() -> tuple[str, dict[str, str]]:
        parameters = {"model": "digits", "metrics": "top1"}
        facts = client.get("/v1/requests/preview", params=parameters).json()["facts"]
        return client.get("/new", params=parameters, headers=HTML).text, facts["fields"]

    text, fields = select()
    assert 'name="dataset" value="digits"' in text
    assert '<option value="test" selected>' in text
    assert "Lock and queue" in text
    assert fields == {
        "model": "digits",
        "dataset": "digits",
        "split": "test",
        "metrics": "top1",
    }  # the other is unlabelled
    request = {"dataset": {"name": "other", "version": "*", "split": "test"}}
    other = variant({"dataset": {"name": "other"}, "request": request})
    other.publish(registry.catalogue, registry.store, ("dataset",))
    text, fields = select()
    assert 'name="dataset" value=""' in text
    assert "Choose a dataset" in text
    assert fields == {"model": "digits", "metrics": "top1"}


def test_who_may_queue_a_run_is_told_how_to_start_a_worker_where_no_machine_takes_jobs(
    registry: LocalRegistry,
) -> None:
    queue = open_queue(registry)
    page = make_new(registry, queue, RequestFields())
    assert page.facts["needs_worker"]
    assert b"<code>benchlock worker</code>" in render_page(page, Viewer(may=frozenset({"read", "run"})))
    assert b"benchlock worker" not in render_page(page, Viewer(may=frozenset({"read"})))
    queue.enrol(machine(1), BOOT, facts())
    page = make_new(registry, queue, RequestFields())
    assert not page.facts["needs_worker"]
    assert b"benchlock worker" not in render_page(page, Viewer(may=frozenset({"read", "run"})))


def test_hostile_text_is_escaped(client: Client) -> None:
    for name in ("model", "dataset", "metrics", "name", "framework", "scenario"):
        assert "<script>alert" not in ask(client, **{name: '"><script>alert(1)</script>'})


def test_a_request_that_cannot_be_locked_leads_back_to_its_page(client: Client, registry: LocalRegistry) -> None:
    data = GIVEN | {"model": "digits@^9.0"}
    answer = client.post("/locks", data=data, headers=OURS, follow_redirects=False)
    assert answer.headers["location"] == f"/new?{urlencode(data)}"
    assert not list(registry.catalogue.locks())


@pytest.mark.parametrize("headers", [{}, {"origin": "https://b.example"}, {"sec-fetch-site": "cross-site"}])
def test_a_form_of_another_site_is_refused(client: Client, registry: LocalRegistry, headers: dict[str, str]) -> None:
    assert client.post("/locks", data=GIVEN, headers=headers).status_code == 403
    assert not list(registry.catalogue.locks())


def test_a_form_that_is_sent_twice_queues_one_job(client: Client) -> None:
    shown = re.search(r'name="job" value="(job/\w+)"', ask(client))
    assert shown is not None
    data = GIVEN | {"queue": "1", "job": shown[1]}
    for _ in range(2):
        answer = client.post("/locks", data=data, headers=OURS, follow_redirects=False)
        assert answer.headers["location"] == f"/jobs/{shown[1].removeprefix('job/')}"
    assert [job["job"] for job in client.get("/v1/jobs").json()["jobs"]] == [shown[1]]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_scenario_has_settings_that_are_valid(registry: LocalRegistry, scenario: str) -> None:
    page = make_new(registry, open_queue(registry), RequestFields(**GIVEN, scenario=scenario))
    assert [str(problem) for problem in page.context["preview"].problems] == []


def test_fixes_change_their_fields_alone() -> None:
    fields = RequestFields(model="a@^1", dataset="d@^2", image="i@1.0.0", os="linux", device="cuda")
    gives = {"framework": "onnxruntime 1.2.3"}
    changes = {"model.version": "2.0.0", "framework.version": "1.2.3", "image": None, "prereleases": ["model"]}
    changed = change_fields(fields, changes | {"hardware": {"os": "linux", "arch": "arm64", "device": "cpu"}}, gives)
    assert changed.as_parameters() == {
        "model": "a@2.0.0", "framework": "onnxruntime@1.2.3", "dataset": "d@^2", "os": "linux", "arch": "arm64",
        "device": "cpu", "prereleases": "model",
    }  # fmt: skip
    assert write_document(changed, "test", ["top1"])["framework"] == {"version": "1.2.3"}


def test_who_may_only_read_sees_no_buttons_and_may_not_lock(registry: LocalRegistry) -> None:
    page = make_new(registry, open_queue(registry), RequestFields(**GIVEN))
    assert b"Lock and queue" in render_page(page, Viewer(may=frozenset({"read", "run"})))
    assert b"Lock and queue" not in render_page(page, Viewer(may=frozenset({"read"})))


def test_the_request_of_a_lock_is_changed_in_the_form_that_wrote_it(client: Client, registry: LocalRegistry) -> None:
    answer = client.post("/locks", data=GIVEN | {"seed": "11", "device": "cpu"}, headers=OURS, follow_redirects=False)
    page = client.get(answer.headers["location"], headers=HTML).text
    link = re.search(r'<a href="(/new\?[^"]*)">Change its request</a>', page)
    assert link is not None
    (lock,) = registry.catalogue.locks()
    text = client.get(unescape(link[1]), headers=HTML).text
    again = client.post("/locks", data=dict(parse_qsl(unescape(link[1]).partition("?")[2])), headers=OURS)
    assert str(again.url).endswith(lock.id)
    assert "Lock and queue" in text
