"""Pages escape what they show, and their assets are small and named after their content."""

from benchlock.api.web.page import Page, Viewer
from benchlock.api.web.rendering import PAGE_HEADERS, load_assets, render_page, show_columns
from benchlock.evaluator.analysis.tables import Column, Table
from tests.api.web.test_cards import Seen

HOSTILE = "\"><script>alert(1)</script>' onload=x <b>"
LIMIT = 12 << 10


def shown(page: Page, viewer: Viewer | None = None) -> Seen:
    return Seen(render_page(page, viewer or Viewer()).decode())


def test_foreign_text_is_text_wherever_it_stands() -> None:
    columns = (Column("artifact"), Column("run"), Column(HOSTILE, None, HOSTILE))
    rows = ((f"model/{HOSTILE}", f"run/{HOSTILE}", HOSTILE),)
    table = Table("runs", HOSTILE, columns, rows, notes=(HOSTILE,))
    names = ("model", "operator", "recipe", "dataset", "outcome", "flagged", "since")
    context = {"chosen": dict.fromkeys(names, HOSTILE), "outcomes": (HOSTILE,), "is_filtered": True, "next": HOSTILE}
    context["flags"] = {HOSTILE: HOSTILE}
    page = Page("runs", HOSTILE, context, {"runs": table}, HOSTILE, ((HOSTILE, HOSTILE),))
    seen = shown(page, Viewer(HOSTILE, frozenset(("admin",)), HOSTILE, path=f"/{HOSTILE}?a={HOSTILE}"))
    assert "b" not in seen.tags
    assert not [name for name, _ in seen.attributes if name.startswith("on") or name == "style"]
    plain = shown(
        Page("runs", "x", {**context, "chosen": dict.fromkeys(names, "x")}, {"runs": table}, breadcrumbs=(("/", "x"),))
    )
    assert seen.tags >= plain.tags


def test_a_run_s_id_is_shortened_to_what_the_commands_accept_and_links_to_the_run() -> None:
    run = "run/01kam1v3mz4w0q3d5g7h9j2k4m"
    page = Page(
        "home", "x", {}, {name: Table(name, "x", (Column("run"),), ((run,),)) for name in ("runs", "artifacts")}
    )
    assert b'<a href="/runs/01kam1v3mz4w0q3d5g7h9j2k4m">run/01kam1v3mz</a>' in render_page(page, Viewer())


def test_numbers_are_aligned_by_their_decimal_points_and_keep_their_texts() -> None:
    durations, texts = (
        (4.4e-5, 1.25e-4, 1.5, None, "13 µs (self-reported)"),
        ("44 µs", "125 µs", "1.5 s", "-", "13 µs (self-reported)"),
    )
    rows = tuple(zip(durations, ("a", "b", "c", "d", "e"), strict=True))
    (is_numeric, cells), (is_text_numeric, names) = show_columns(Table("x", "x", (Column("t", "s"), Column("n")), rows))
    assert (is_numeric, is_text_numeric) == (True, False)
    assert list(names) == ["a", "b", "c", "d", "e"]
    assert [cell.striptags() for cell in cells] == list(texts)
    assert len({str(cell).split('"')[1] for cell in cells}) == 1  # one width for all that follows the points
    assert [str(cell).partition("<")[0] for cell in cells] == ["44", "125", "1", "-", "13"]


def test_commands_name_the_service_that_shows_them() -> None:
    page = Page("home", "x", {}, {name: Table(name, "x", (Column("run"),), ()) for name in ("runs", "artifacts")})
    assert b"<code>benchlock publish MANIFEST</code>" in render_page(page, Viewer())
    shown = render_page(page, Viewer(address="https://bench.example"))
    assert b"<code>benchlock --registry https://bench.example publish MANIFEST</code>" in shown


def test_whole_numbers_and_digests_of_a_table() -> None:
    columns = (Column("count"), Column("sha256"))
    (_, counts), (_, digests) = show_columns(Table("x", "x", columns, ((1200, "ab" * 32), (7, "no digest"))))
    assert list(counts) == ["1,200", "7"]
    assert digests[0].startswith('<details class="digest"><summary><code>abababababab…')
    assert "ab" * 32 in digests[0]
    assert digests[1] == "no digest"


def test_assets_are_small_and_without_anything_foreign() -> None:
    for name, (content, _) in load_assets().items():
        assert len(content) <= LIMIT, name
        assert b"http" not in content
        assert max(map(len, content.splitlines())) < 500


def test_the_policy_allows_nothing_inline_and_no_other_host() -> None:
    policy = dict(part.split(" ", 1) for part in PAGE_HEADERS["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert not [value for value in policy.values() if "unsafe" in value or "*" in value or "http" in value]
