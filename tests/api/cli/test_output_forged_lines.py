"""Whatever text a client had recorded: what the command line prints of it has no line of the client's making."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from benchlock.api.cli import output
from benchlock.api.cli.artifact_commands import list_artifacts
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.queue.job_commands import explain, jobs
from benchlock.api.cli.queue.machine_commands import machines
from benchlock.api.cli.run_tables import print_outcome, print_run, print_runs
from benchlock.api.cli.server_commands import list_tokens
from benchlock.api.cli.server_commands import log as log_command
from benchlock.api.schemas.run_documents import run_document
from benchlock.api.service_log import JsonLines
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.queue.job_matching import MachineFacts
from benchlock.evaluator.queue.queue_types import Explanation, Job, Machine, MachineId, MachineMatch, new_job_id
from benchlock.evaluator.records.run_types import Run, RunEnd
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from benchlock.registry.requests.hardware_requirements import Accelerator, HostFacts
from tests.support.evaluator.recorded import HOST, LOCK, NOON, recorded
from tests.support.resolution.variants import variant

FORGED = "  top1  1.0000  [0.9999, 1.0000]  10000"
EVIL = f"a\r\n{FORGED}\n{FORGED}\x1b[2K\x1b[1A\u2028{FORGED}\u2029{FORGED}\x85{FORGED}\x0b{FORGED}\u202eb\ud800"
"""A text that tries every way to a line of its own."""


def lines_of(text: str) -> list[str]:
    """The lines as a terminal shows them: every separator that any of them knows."""
    return text.splitlines()


def check_lines(text: str) -> None:
    assert FORGED.strip() in text or "top1" in text, "the text is shown at all"
    for line in lines_of(text):
        assert not line.startswith(FORGED), text
        assert line.isprintable(), ascii(line)


def evil_run(outcome: str) -> Run:
    start = recorded(lock=LOCK).start
    start = replace(
        start,
        platform=dict.fromkeys(start.platform, EVIL),
        host=dict.fromkeys(HOST, EVIL) | {EVIL: EVIL},
        process={EVIL: EVIL},
    )
    metric = Metric(EVIL, 1.0, EVIL, "higher", 1, Interval(None, None), 1)
    end = RunEnd(
        outcome=outcome,  # type: ignore[arg-type]
        ended_at=NOON + timedelta(minutes=1),
        failure_class=EVIL if outcome == "failed" else None,
        failure_message=EVIL if outcome == "failed" else None,
        metrics=(metric,),
        packages={EVIL: EVIL},
        blobs={EVIL: Descriptor(digest_bytes(b""), 0)},
        timings={EVIL: 1.0, "verification": 1.0, "run": 2.0},
        details={
            "cpus": [EVIL],
            "not_enforced": [EVIL],
            "threads": {"requested": EVIL, "predictor": {EVIL: EVIL}},
            "loadgen": {
                "valid": False,
                "version": EVIL,
                "sequence_sha256": EVIL,
                "settings": {},
                "results": {"result_invalid_reason": EVIL},
            },
        },
    )
    return Run(start, end)


@pytest.mark.parametrize("outcome", ["done", "failed"])
def test_no_text_of_a_run_forges_a_line(outcome: str, capsys: pytest.CaptureFixture[str]) -> None:
    run, lock = evil_run(outcome), variant({}).lock
    print_outcome(run, lock)
    print_run(run, lock, f"{EVIL}\n{FORGED}\n" if outcome == "failed" else None)
    print_runs([run], {run.start.lock: None})
    output.print_json(run_document(run))
    check_lines(capsys.readouterr().out)


def evil_job() -> Job:
    job_id = new_job_id(NOON)
    return Job(
        id=job_id,
        lock=LOCK,
        state="failed",
        phase=None,
        machine=MachineId(EVIL),
        run=None,
        lost=0,
        engine=0,
        crash=0,
        cancel_asked=False,
        failure=EVIL,
        reason=EVIL,
        due=None,
        submitted_at=NOON,
    )


def evil_machine() -> Machine:
    host = HostFacts(EVIL, EVIL, 2, 1 << 30, (Accelerator(EVIL, None, EVIL),), EVIL)
    facts = MachineFacts(host, EVIL, EVIL, EVIL, EVIL)
    return Machine(MachineId(EVIL), EVIL, facts, EVIL, 1.0, False, None)


class EvilQueue:
    """A queue of which every text is foreign."""

    def jobs(self, **_: Any) -> list[Job]:  # noqa: ANN401
        return [evil_job()]

    def machines(self) -> list[Machine]:
        return [evil_machine()]

    def explain(self, _: str) -> Explanation:
        return Explanation(evil_job(), True, EVIL, (MachineMatch(MachineId(EVIL), (EVIL, EVIL)),), 0)


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (jobs, {"job": "", "state": None, "limit": 1, "wait": False}),
        (machines, {"machine": "", "drain": "", "resume": False}),
        (explain, {"job": new_job_id(NOON)}),
    ],
    ids=["jobs", "machines", "explain"],
)
def test_no_text_of_the_queue_forges_a_line(
    command: Any,  # noqa: ANN401 - a command of click
    arguments: dict[str, Any],
    as_json: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("job_commands", "machine_commands"):
        monkeypatch.setattr(f"benchlock.api.cli.queue.{module}.open_queue", lambda _: EvilQueue())
    command.callback.__wrapped__(Invocation("unused", as_json), **arguments)
    check_lines(capsys.readouterr().out)


class Anything:
    """An object that has every attribute, as given or as a foreign text."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> str:
        return EVIL


@pytest.mark.parametrize(
    ("command", "given"),
    [
        (log_command, {"access": Anything(log=lambda *_: (Anything(at=NOON),)), "arguments": (1, None, None)}),
        (
            list_tokens,
            {
                "access": Anything(
                    tokens=lambda: (
                        Anything(scopes=(EVIL,), created_at=NOON, expires_at=NOON, revoked_at=None, rotated_at=None),
                    )
                )
            },
        ),
        (
            list_artifacts,
            {
                "opened": Anything(
                    catalogue=Anything(list=lambda *_: (Anything(published_at=NOON, reference=Anything()),))
                ),
                "arguments": ("", None, "", "", ""),
            },
        ),
    ],
    ids=["log", "token list", "list"],
)
def test_no_text_of_a_list_forges_a_line(
    command: Any,  # noqa: ANN401
    given: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("benchlock.api.cli.server_commands.open_access", lambda invocation: invocation.access)
    arguments = given.pop("arguments", ())
    for as_json in (False, True):
        command.callback.__wrapped__(Anything(as_json=as_json, **given), *arguments)
    check_lines(capsys.readouterr().out)


SAID: dict[str, Callable[[], None]] = {
    "message": lambda: output.say(f"warning: {EVIL}"),
    "error": lambda: output.show_error(InvalidInputError(EVIL, where=EVIL, next_step=EVIL), as_json=False),
}


@pytest.mark.parametrize("what", SAID)
def test_no_message_forges_a_line(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    SAID[what]()
    check_lines(capsys.readouterr().err)


def test_no_text_forges_a_line_of_the_log() -> None:
    import logging  # noqa: PLC0415

    record = logging.LogRecord("benchlock", logging.WARNING, "", 0, EVIL.replace("\ud800", ""), None, None)
    record.fields = {"reason": EVIL.replace("\ud800", "")}
    check_lines(JsonLines().format(record))
