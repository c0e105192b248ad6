"""The page of a matrix: one metric of its cells, why others are empty, page by page."""

from dataclasses import dataclass
from html import escape
from typing import cast

import pytest
from msgspec.structs import replace

from benchlock.api.client.matrix_clients import EmbeddedMatrices
from benchlock.api.web.links import compare_path
from benchlock.api.web.page import Page, Viewer
from benchlock.api.web.pages.matrix_pages import ROWS, MatrixQuery, make_matrix
from benchlock.api.web.rendering import render_page
from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.matrices.matrix_tables import CellMetric, CellResult, CellVerdict, MatrixTable
from benchlock.evaluator.matrices.matrix_types import MatrixStatus
from tests.support.evaluator.recorded import NOON, metric

ID = digest_bytes(b"matrix")
RUNNER = Viewer(name="token/t", may=frozenset({"read", "run"}))


@dataclass
class Stored:
    """A matrix as its registry has it."""

    states: dict[str, int]
    cells: tuple[CellResult, ...]

    def read(self, matrix: Digest) -> tuple[MatrixStatus, MatrixTable]:
        status = MatrixStatus(id=matrix, name="formats", as_of=NOON, submitted_at=NOON, states=self.states)
        return status, MatrixTable(id=matrix, name="formats", cells=self.cells, groups=())

    def may_cancel(self, _: Digest) -> bool:
        return True


def page_of(states: dict[str, int], *cells: CellResult, **query: str) -> Page:
    return make_matrix(cast("EmbeddedMatrices", Stored(states, cells)), ID, MatrixQuery(**query))


def done(name: str, rank: int) -> CellResult:
    ranked = CellMetric(metric=metric("top1", 0.5 + rank / 10), rank=rank, verdict="best" if rank == 1 else "worse")
    values = (CellMetric(metric=metric("latency_p50", 0.001)), ranked)
    return CellResult(cell=name, lock=ID, group=1, metrics=values)


PLACES: tuple[tuple[int, CellVerdict], ...] = ((1, "best"), (2, "worse"))
EMPTY = CellResult(cell="model=c", lock=None, missing="conflict: no version of c fits")


def test_a_metric_with_ranks_is_shown_first_and_another_on_demand() -> None:
    cells = (done("model=a", 1), done("model=b", 2), EMPTY)
    page = page_of({"done": 2, "conflict": 1}, *cells)
    table = page.tables["cells"]
    assert (table.columns[1].name, table.column("top1")) == ("top1", (0.6, 0.7, None))
    assert (table.column("rank"), table.column("verdict")) == ((1, 2, None), ("best", "worse", None))
    assert table.column("missing") == (None, None, EMPTY.missing)
    other = page_of({"done": 2}, *cells, metric="latency_p50").tables["cells"]
    assert (other.column("latency_p50"), other.column("rank")) == ((0.001, 0.001, None), (None, None, None))
    with pytest.raises(InvalidInputError, match="no cell has a metric speed"):
        page_of({"done": 2}, *cells, metric="speed")


def test_a_metric_that_tells_cells_apart_comes_before_one_by_which_all_tie() -> None:
    tie = CellMetric(metric=metric("top1", 0.9), rank=1, verdict="tied for best")
    speeds = [CellMetric(metric=metric("latency_p50", rank / 1000), rank=rank, verdict=word) for rank, word in PLACES]
    cells = [CellResult(cell=f"model={s.rank}", lock=ID, group=1, metrics=(tie, s)) for s in speeds]
    assert page_of({"done": 2}, *cells).tables["cells"].columns[1].name == "latency_p50"


def test_the_runs_of_comparable_cells_lead_to_their_comparison() -> None:
    runs = ["run/01kam1v3mz4w0q3d5g7h9j2k4m", "run/01kam1v3mz4w0q3d5g7h9j2k4n"]
    cells = [replace(done(f"model={run}", 1), runs=(run,)) for run in runs]
    page = page_of({"done": 2}, *cells, replace(done("model=c", 1), runs=(f"{runs[0][:-1]}p",), group=2))
    assert page.tables["cells"].column("run")[:2] == tuple(runs)
    assert f'href="{escape(compare_path(runs))}"' in render_page(page, RUNNER).decode()
    assert page_of({"done": 1}, cells[0]).context["compare"] == ""


def test_many_cells_come_page_by_page() -> None:
    cells = [done(f"model={number}", 1) for number in range(ROWS + 5)]
    page = page_of({"done": len(cells)}, *cells)
    assert len(page.tables["cells"].rows) == ROWS
    assert page.context["next"] == f"/matrices/{ID}?skip={ROWS}"
    last = page_of({"done": len(cells)}, *cells, skip=str(ROWS))
    assert last.tables["cells"].column("cell") == tuple(cell.cell for cell in cells[ROWS:])
    assert last.context["next"] == ""
    for text in ("-1", "x", "9" * 7):
        with pytest.raises(InvalidInputError, match="not a number of cells"):
            page_of({"done": 1}, *cells, skip=text)


@pytest.mark.parametrize(
    ("state", "is_live"), [("leased", True), ("blocked", True), ("done", False), ("failed", False)]
)
def test_only_a_matrix_that_goes_on_can_be_cancelled_and_renews_its_page(state: str, *, is_live: bool) -> None:
    page = page_of({state: 1, "conflict": 1}, EMPTY)
    text = render_page(page, RUNNER).decode()
    assert (page.refresh is not None, f'action="/matrices/{ID}/cancel"' in text) == (is_live, is_live)
    assert f"1 {state}" in text


def test_a_submission_that_broke_off_says_what_to_do() -> None:
    text = render_page(page_of({"not submitted": 3}), RUNNER).decode()
    assert "benchlock matrix submit FILE" in text
