"""The phase ``trace``: experiments in fresh processes, whose blocks of calls take turns.

Differences of experiments are meaningful only where both saw the same state of the host. One process of every
experiment makes blocks of calls in turns, in an order that is drawn anew for every round, and only one process works at
a time. The memory layout of a process makes all of its calls faster or slower, so this is repeated with new processes.

``trace.safetensors`` has the tensors of each experiment, as ``EXPERIMENT.NAME``, and all else as JSON in the metadata
``trace``. ``trace-native.zip`` has the profilers' own output.
"""

import json
import random
import time
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ..core.failures import Failure
from ..core.job import Job
from ..core.phase_reports import Progress
from ..core.supervisor import PhaseProcess, run_phase
from ..inference.predictions import save_tensors
from .process_records import ProcessRecord, merge_records, read_record
from .row_matrix import measure_offset
from .trace_experiment import BLOCK, END, GRAPH, experiment_file, find_kernel_module
from .trace_levels import EXPERIMENTS, LARGEST_TRACE, OVER_TIME, SECONDS, Plan, plan_calls

TRACE: Final = "trace.safetensors"
NATIVE: Final = "trace-native.zip"
SCHEMA: Final = 1
_NO_GRAPH_ROWS = 100
"""The assumed number of rows of a model whose graph could not be described."""


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Trace the model, write the files of the trace, and return the report of the phase.

    Raises:
        Failure: The failure of the first experiment that failed.
    """
    names, predictor = EXPERIMENTS[job.trace], job.model.predictor
    offset = measure_offset()
    graph, gaps = _describe_graph(job, folder, output)
    if "system" in names and find_kernel_module(predictor) is None:
        reason = f"{predictor} has no profiler of kernels, so there are no rows of kernels"
        gaps.append(_gap("system", reason, "read the counters of the experiment, or trace the level framework"))
    measured = _Measurement(job, folder, output, names)
    plan = measured.run(len(graph["rows"]) if graph else _NO_GRAPH_ROWS)
    merged = [merge_records(measured.records[name]) for name in names]
    documents = [{**document, "rows": _number_rows(document["rows"])} for document, _ in merged]
    tensors = {f"{name}.{key}": v for name, (_, t) in zip(names, merged, strict=True) for key, v in t.items()}
    notes = (
        [] if measured.is_equal else ["the answers of the experiments are not bit-equal: a profiler changes the model"]
    )
    notes += _limit_native(output / NATIVE)
    calls, untraced = len(tensors[f"{names[0]}.call_start"]), measured.reports[0]
    document = {
        "schema": SCHEMA,
        "level": job.trace,
        "framework": predictor,
        "framework_version": untraced["version"] or "",
        "batch": untraced["batch"],
        "threads": job.threads,
        "block_calls": plan.block_calls,
        "seed": job.seeds.schedule,
        "clock": {"realtime_minus_monotonic_ns": offset, "drift_ns": measure_offset() - offset},
        "caps": {
            "calls": calls,
            "processes": plan.processes,
            "reason": OVER_TIME if calls < plan.calls else plan.reason,
        },
        "graph": graph,
        "experiments": documents,
        "gaps": gaps,
        "notes": notes,
        "phases": untraced["phases"],
    }
    text = json.dumps(document, separators=(",", ":"), sort_keys=True)
    save_tensors(output / TRACE, tensors, {**job.file_metadata, "trace": text})
    rows = {document["deepest"]: len(document["rows"]) for document in documents}
    return {
        "trace": {"level": job.trace, "calls": calls, "rows": rows, "gaps": [gap["experiment"] for gap in gaps]},
        "threads": untraced["threads"],
        "device": untraced["device"],
        "timings": {},
    }


@dataclass
class _Measurement:
    """The processes of all experiments, and what they recorded.

    ``records`` are those of each experiment, ``reports`` those of the first process of each, and ``is_equal`` whether
    the answers of all experiments are bit-equal.
    """

    job: Job
    folder: Path
    output: Path
    names: Sequence[str]
    records: dict[str, list[ProcessRecord]] = field(default_factory=dict)
    reports: list[dict[str, Any]] = field(default_factory=list)
    is_equal: bool = True

    def run(self, rows: int) -> Plan:
        """Measure with new processes as often as the plan says; ``rows`` is the estimated number of rows."""
        order = random.Random(self.job.seeds.schedule)  # noqa: S311 - an order, no secret
        plan = self._run_processes(0, None, rows, order)
        for number in range(1, plan.processes):
            self._run_processes(number, plan, rows, order)
        Progress("trace", plan.processes).finish()
        return plan

    def _run_processes(self, number: int, plan: Plan | None, rows: int, order: random.Random) -> Plan:
        """Measure with one new process of every experiment; return the plan, which the first ones decide."""
        with ExitStack() as stack:
            workers, round_ns, began = [], 0, time.monotonic()
            for name in self.names:
                workers.append(_start(name, self.job, self.folder, self.output))
                stack.callback(workers[-1].close)
                round_ns += workers[-1].receive()  # one after the other: only one process works at a time
            plan = plan or plan_calls(time.monotonic() - began, round_ns / 1e9, rows)
            _make_rounds(workers, plan, order)
            for worker in workers:
                worker.send(END)
                report = worker.finish()
                if number == 0:
                    self.reports.append(report)
        Progress("trace", plan.processes).at(number + 1)
        answers = set()
        for name in self.names:
            record = read_record(experiment_file(self.output, name, "safetensors"))
            answers.add(record.answers_sha256)
            self.records.setdefault(name, []).append(record)
            _pack_native(self.output / NATIVE, experiment_file(self.output, name, "native"), f"{name}-{number}.native")
        self.is_equal &= len(answers) == 1
        return plan


def _gap(experiment: str, reason: str, next_step: str) -> dict[str, Any]:
    return {"experiment": experiment, "reason": reason, "next_step": next_step}


def _start(name: str, job: Job, folder: Path, output: Path) -> PhaseProcess:
    """Start an experiment, with the environment that its profiler needs."""
    module = find_kernel_module(job.model.predictor) if name == "system" else None
    variables = {} if module is None else import_module(f".{module}", __package__).VARIABLES
    return PhaseProcess(f"trace-{name}", folder, output, job.threads, variables)


def _make_rounds(workers: Sequence[PhaseProcess], plan: Plan, order: random.Random) -> None:
    """Let every experiment make a block of calls, in a new order each round, until its share of the time is over."""
    end = time.monotonic() + SECONDS / plan.processes
    for _ in range(plan.blocks):
        for worker in order.sample(workers, len(workers)):
            worker.send(BLOCK + bytes([plan.block_calls]))
            worker.receive()
        if time.monotonic() > end:
            return


def _describe_graph(job: Job, folder: Path, output: Path) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return the graph of the model and no gap; None and a gap where the framework cannot describe it."""
    try:
        run_phase(f"trace-{GRAPH}", folder, output, job.threads)
    except Failure as error:
        reason = f"the graph of the model could not be described: {error.message}"
        return None, [_gap(GRAPH, reason, "read the rows of the experiment framework")]
    path = experiment_file(output, GRAPH, "json")
    graph: dict[str, Any] = json.loads(path.read_bytes())
    path.unlink()
    return {**graph, "rows": _number_rows(graph["rows"])}, []


def _number_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"index": index, **row} for index, row in enumerate(rows)]


def _pack_native(archive: Path, file: Path, name: str) -> None:
    """Move a profiler's own output, if there is one, into the archive; equal ones give equal bytes."""
    if file.exists():
        with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED, compresslevel=6) as packed:
            packed.writestr(zipfile.ZipInfo(name), file.read_bytes(), zipfile.ZIP_DEFLATED)
        file.unlink()


def _limit_native(archive: Path) -> list[str]:
    """Return a note if the archive was too large to be kept."""
    if not archive.exists():
        return []
    archive.chmod(0o644)
    if archive.stat().st_size <= LARGEST_TRACE:
        return []
    archive.unlink()
    return ["the profilers' own output is larger than 64 MiB and was not kept"]
