"""Ids on the command line, and the first characters of them."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from msgspec.structs import replace
from sqlalchemy import Engine

from benchlock.api.cli.run_options import (
    complete_id,
    complete_run_id,
    complete_run_target,
)
from benchlock.api.client.id_prefixes import Candidates
from benchlock.api.client.user_files import complete_lock_id
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import new_run_id
from benchlock.registry.catalogue.catalogue import Catalogue
from tests.support.evaluator.recorded import NOON, recorded
from tests.support.registry.filled import fill
from tests.support.resolution.locks import request, shelf

IDS = [f"job/01kam1v3mz4w0q3d5g7h9j2k{number:02}" for number in range(12)]


def completed(callback: Callable[..., Any], text: object, opened: object = None) -> Any:  # noqa: ANN401 - as click has it
    """Return what a parameter with this callback makes of a text."""
    return callback(SimpleNamespace(obj=SimpleNamespace(opened=opened)), click.Argument(["id"]), text)


def find_jobs(_: object, prefix: str, limit: int) -> Candidates:
    return [(id_, "2026-11-22 12:00") for id_ in IDS if id_.startswith(prefix)][:limit]


def test_the_beginning_of_an_id_names_the_one_run_that_has_it(database: Engine) -> None:
    runs, records = fill(database), Records(database)
    opened = SimpleNamespace(records=records, catalogue=Catalogue(database, lambda: NOON))
    twin = recorded(lock=runs[0].start.lock)
    records.start(replace(twin.start, id=new_run_id(NOON), attempt=9))
    model = shelf().lock(request()).subject

    for text in (runs[1].id[:13], runs[1].id[4:13], runs[1].id[:24], runs[1].id[4:]):
        for callback in (complete_run_id, complete_run_target):
            assert completed(callback, text, opened) == runs[1].id
    assert completed(complete_run_target, (runs[1].id[4:13], "model/digits"), opened) == (runs[1].id, "model/digits")
    with pytest.raises(InvalidInputError, match=f"ambiguous id {runs[0].id[:8]}") as caught:
        completed(complete_run_id, runs[0].id[4:8], opened)
    assert f"{runs[1].id} (2026-11-21 12:01, {model.name} {model.version})" in str(caught.value.where)
    with pytest.raises(UnknownNameError, match="no run id begins with run/7zzz") as unknown:
        completed(complete_run_id, "7zzz", opened)
    assert unknown.value.next_step == "list the runs, or write the id"
    for other in (runs[1].id[:7], runs[1].id[4:7], f"{runs[1].id}0", "model/digits", "7zzz"):
        assert completed(complete_run_target, other, opened) == other
    with pytest.raises(UnknownNameError, match="no run id begins with run/7zzz"):
        completed(complete_run_target, "run/7zzz", opened)


def test_other_ids_are_completed_alike() -> None:
    complete_job_id = complete_id("job", find_jobs)
    for text in (IDS[11], IDS[11][4:]):
        assert completed(complete_job_id, text) == IDS[11]
    for other in ("", None, f"run/{IDS[0][4:]}", "job/01k", "01K4"):
        assert completed(complete_job_id, other) == other
    with pytest.raises(InvalidInputError, match="ambiguous id job/01ka") as caught:
        completed(complete_job_id, "01ka")
    shown = str(caught.value.where).split("; ")
    assert shown == [*(f"{id_} (2026-11-22 12:00)" for id_ in IDS[:10]), "and more"]


def test_the_digits_of_a_lock_id_need_no_prefix_unless_a_file_has_their_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cafe").touch()
    assert complete_lock_id("1c2ab5b6") == complete_lock_id("sha256:1c2ab5b6") == "sha256:1c2ab5b6"
    for other in ("cafe", "1c2", "digits.lock", "1C2AB5B6"):
        assert complete_lock_id(other) == other
