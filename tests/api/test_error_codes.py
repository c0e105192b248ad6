"""One map from errors to exit codes and statuses; and errors that survive the way from a server to a client."""

import json
import subprocess
import sys

import msgspec
import pytest

from benchlock.api.error_codes import FAULTS, error_document, fault_of, fault_of_status
from benchlock.api.schemas.problem_details import Problem, decode_problem, encode_problem
from benchlock.artifacts.blob_store import BlobNotFoundError
from benchlock.artifacts.errors import (
    BenchlockError,
    IntegrityError,
    InvalidInputError,
    RefusedError,
    UnavailableError,
    UnknownNameError,
)
from benchlock.evaluator.records.run_types import RunEndedError
from benchlock.registry.catalogue.catalogue_protocol import VersionTakenError
from benchlock.registry.resolution.conflicts import Conflict, ConflictError

EXPECTED = [
    (InvalidInputError("x"), 2, 422),
    (UnknownNameError("x"), 2, 404),
    (BlobNotFoundError("x"), 2, 404),
    (VersionTakenError("x"), 2, 409),
    (RefusedError("x"), 1, 409),
    (RunEndedError("x"), 1, 409),
    (ConflictError(Conflict("x")), 3, 409),
    (IntegrityError("x"), 4, 422),
    (UnavailableError("x"), 5, 503),
    (BenchlockError("x"), 2, 400),
    (KeyError("x"), 5, 500),
]


@pytest.mark.parametrize(("error", "code", "status"), EXPECTED, ids=lambda one: getattr(one, "code", None))
def test_an_error_has_an_exit_code_and_a_status(error: Exception, code: int, status: int) -> None:
    assert (fault_of(error).exit_code, fault_of(error).status) == (code, status)


@pytest.mark.parametrize("error", [error for error, _, _ in EXPECTED if isinstance(error, BenchlockError)])
def test_an_error_arrives_as_it_left(error: BenchlockError) -> None:
    error.where, error.next_step = "files[0]", "do it again"
    error.problems = (InvalidInputError("a", where="b", next_step="c"), VersionTakenError("d"))
    again = decode_problem(msgspec.json.decode(msgspec.json.encode(encode_problem(error, "id")), type=Problem))
    assert type(again) is type(error)
    assert (str(again), again.code) == (str(error), error.code)
    assert [(type(one), str(one)) for one in again.problems] == [(type(one), str(one)) for one in error.problems]
    assert getattr(again, "conflict", None) == getattr(error, "conflict", None)


@pytest.mark.parametrize("reason", FAULTS)
def test_an_error_that_this_version_does_not_know_keeps_its_exit_code(reason: str) -> None:
    fault = FAULTS[reason]
    problem = Problem(
        type=f"urn:benchlock:problem:{reason}", title="", status=fault.status, detail="of next year", code="new-code"
    )
    error = decode_problem(problem)
    assert fault_of(error).exit_code == fault.exit_code
    assert (error.code, error.what) == ("new-code", "of next year")


def test_a_conflict_keeps_its_exit_code_where_nothing_has_loaded_the_resolver() -> None:
    code = (
        "from benchlock.api.error_codes import fault_of\n"
        "from benchlock.api.schemas.problem_details import Problem, decode_problem\n"
        "p = Problem(type='urn:benchlock:problem:conflict', title='', status=409, detail='x', code='conflict',"
        " conflict={'summary': 'x'})\n"
        "error = decode_problem(p); assert error.conflict == {'summary': 'x'}\n"
        "import sys; assert 'benchlock.registry.resolution.conflicts' not in sys.modules\n"
        "print(fault_of(error).exit_code)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "3\n"


def test_a_status_stands_for_a_reason() -> None:
    reasons = {400: "malformed", 404: "unknown-name", 418: "error", 502: "internal"}
    assert {status: fault_of_status(status).reason for status in reasons} == reasons


def test_the_document_of_an_error_keeps_its_bytes() -> None:
    error: BenchlockError = IntegrityError("a differs", where="a", next_step="restore it")
    one = '{"code": "integrity", "message": "a differs", "where": "a", "next": "restore it"}'
    assert json.dumps(error_document(error)) == one
    error = InvalidInputError("b is missing")
    two = '{"code": "invalid-input", "message": "b is missing", "where": null, "next": null'
    error.problems = (error, UnknownNameError("unknown c", where="c"))
    three = '{"code": "unknown-name", "message": "unknown c", "where": "c", "next": null}'
    assert json.dumps(error_document(error)) == f'{two}, "problems": [{two}}}, {three}]}}'
    document = error_document(ConflictError(Conflict("no versions")))
    assert list(document) == ["code", "message", "where", "next", "conflict"]
