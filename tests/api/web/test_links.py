"""Cells that name pages lead to them, and nothing else does."""

import pytest

from benchlock.api.web.links import artifact_path, link_cell, name_run_file, with_query


@pytest.mark.parametrize(
    ("column", "value", "path"),
    [
        ("run", "run/01kam1v3mz4w0q3d5g7h9j2k4m", "/runs/01kam1v3mz4w0q3d5g7h9j2k4m"),
        ("run", "javascript:alert(1)", None),
        ("run", 3, None),
        ("lock", "sha256:00", "/locks/sha256:00"),
        ("artifact", "model/acme/a@1.0.0", "/model/acme/a@1.0.0"),
        ("artifact", "model/a b", "/model/a%20b"),
        ("artifact", "other/a", None),
        ("leaderboard", "acme/d@1.0.0/a/b", "/leaderboards?dataset=acme%2Fd%401.0.0&split=a%2Fb"),
        ("results", "run/01kam1v3mz4w0q3d5g7h9j2k4m", None),
        ("run", None, None),
    ],
)
def test_a_cell_leads_to_the_page_that_it_names(column: str, value: str | int | None, path: str | None) -> None:
    assert link_cell(column, value) == path


def test_a_query_has_what_has_a_value() -> None:
    assert with_query("/runs", model="a&b", outcome="", cursor=None) == "/runs?model=a%26b"
    assert with_query("/runs", model="") == "/runs"
    assert artifact_path("model", "a", "1.0.0+b") == "/model/a@1.0.0%2Bb"


@pytest.mark.parametrize(
    ("role", "name"),
    [
        ("predictions", "predictions-01kam.safetensors"),
        ("result", "result-01kam.json"),
        ("trace-native", "trace-native-01kam.zip"),
        ("log", "log-01kam.txt"),
    ],
)
def test_a_file_of_a_run_is_downloaded_with_its_role_and_type(role: str, name: str) -> None:
    assert name_run_file("run/01kam", role) == name
