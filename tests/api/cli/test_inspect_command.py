"""``inspect``, ``trace export`` and ``compare --layers`` of recorded runs with traces."""

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchlock.api.cli.main import run
from benchlock.api.local.local_registry import LocalRegistry, open_registry
from benchlock.evaluator.analysis.host_roofs import Roofs
from benchlock.evaluator.records.run_types import RunId
from benchlock.evaluator.runner.host_platform import this_host
from benchlock.evaluator.runner.job_folder import fingerprint_lock
from benchlock.evaluator.workflows import run_traces
from benchlock.registry.lock.lockfile import Lock
from tests.support.api.serving import service
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.releases import release
from tests.support.evaluator.traces import LAYERS, ROOFS, write_trace
from tests.support.resolution.variants import variant


@dataclass(frozen=True)
class Bench:
    """A registry, and what records runs of its lock with traces."""

    registry: LocalRegistry
    lock: Lock
    folder: Path

    def record(self, *, trace: bool = True, this_machine: bool = False, **options: object) -> RunId:
        store = self.registry.store
        made = make_run(self.lock, store)
        end, start = made.end, made.start
        assert end is not None
        if trace:
            options = {"fingerprint": fingerprint_lock(self.lock), **options}
            path = write_trace(self.folder / f"{made.id.rpartition('/')[2]}.safetensors", **options)  # type: ignore[arg-type]
            end = replace(end, blobs={**end.blobs, "trace": store.put_file(path)})
        if this_machine:
            start = replace(start, host=this_host().fingerprint(None))
        self.registry.records.start(start)
        self.registry.records.finish(made.id, end)
        return made.id


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    opened = open_registry(str(tmp_path / "registry"), print)
    made = variant({"lock": CURRENT, "files": IDX})
    release(monkeypatch, made.lock.harness)
    made.publish(opened.catalogue, opened.store)
    opened.catalogue.put_lock(made.lock)
    monkeypatch.setenv("BENCHLOCK_REGISTRY", str(tmp_path / "registry"))
    return Bench(opened, made.lock, tmp_path)


def answer(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert run(list(words)) == code, capsys.readouterr()
    captured = capsys.readouterr()
    return captured.out if code == 0 else captured.err


def test_a_run_is_inspected_in_every_format(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    id_ = bench.record()
    text = answer(capsys, "inspect", id_)
    for words in ("A2: Layers", "A6: Latency by kind", "overhead: Cost of tracing", "conv1", "40 µs", "remainder: "):
        assert words in text
    assert text.count("note: ") == len({line for line in text.splitlines() if line.startswith("note: ")})
    document = json.loads(answer(capsys, "inspect", id_, "--analysis", "all", "--json"))
    assert [table["id"] for table in document["tables"]][:15] == [f"A{number}" for number in range(1, 16)]
    assert document["tables"][1]["facts"]["run"] == id_
    lines = list(csv.DictReader(io.StringIO(answer(capsys, "inspect", id_, "--analysis", "A2", "--format", "csv"))))
    assert [line["name"] for line in lines] == [row["name"] for row in LAYERS]
    assert float(lines[0]["latency (s)"]) == pytest.approx(40e-6)
    assert "| index | name |" in answer(capsys, "inspect", id_, "--analysis", "A2", "--format", "md")
    assert "one table" in answer(capsys, "inspect", id_, "--format", "csv", code=2)


def test_the_largest_layers_come_first(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "inspect", bench.record(), "--analysis", "A2", "--top", "2")
    assert [line.split()[1] for line in text.splitlines()[4:6]] == ["conv1", "depthwise"]
    assert "reorder" not in text


def test_a_run_without_a_trace_says_how_to_get_one(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    id_ = bench.record(trace=False)
    for words in (
        ("inspect", id_),
        ("trace", "export", id_, "-o", "x.json"),
        ("compare", "--layers", id_, bench.record()),
    ):
        text = answer(capsys, *words, code=1)
        assert f"{id_} has no trace: its request has none" in text
        assert "set `trace: framework` in the request, lock the request again" in text


def test_a_trace_of_another_lock_is_refused(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    text = answer(capsys, "inspect", bench.record(fingerprint="ab" * 32), code=4)
    assert "contradicts its evidence" in text


def test_an_unknown_analysis_is_an_error(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown analysis 'a99'" in answer(capsys, "inspect", bench.record(), "--analysis", "A99", code=2)


def test_roofs_are_measured_once_on_the_host_of_the_run(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[int] = []

    def measure(threads: int) -> Roofs:
        measured.append(threads)
        return ROOFS

    monkeypatch.setattr(run_traces, "measure_roofs", measure)
    id_ = bench.record(this_machine=True)
    assert "inspect RUN --roof" in answer(capsys, "inspect", id_, "--analysis", "A14")
    for _ in range(2):
        text = answer(capsys, "inspect", id_, "--analysis", "A14", "--roof")
        assert "roofs: Measured roofs of the host" in text
    assert measured == [1]
    assert "peak: 100 Gflop/s" in answer(capsys, "inspect", id_, "--analysis", "A14")
    assert "another host" in answer(capsys, "inspect", bench.record(), "--roof", code=1)
    (path,) = (bench.registry.home / "roofs").iterdir()
    path.write_text("{")
    assert "delete the file" in answer(capsys, "inspect", id_, code=2)


def test_further_runs_are_further_batch_sizes(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    runs = (bench.record(), bench.record(batch=8))
    document = json.loads(answer(capsys, "inspect", *runs, "--analysis", "A1,A15", "--json"))
    assert [[row[0] for row in table["rows"]] for table in document["tables"]] == [[1, 8], [1, 8]]
    assert "at another batch size" in answer(capsys, "inspect", runs[0], bench.record(), code=2)


@pytest.mark.parametrize("name", ["chrome", "perfetto", "speedscope", "otlp", "folded"])
def test_a_trace_is_exported(name: str, bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    id_, path = bench.record(), bench.folder / "trace.out"
    text = answer(capsys, "trace", "export", id_, "--format", name, "-o", str(path))
    assert text.startswith(f"{path}: ")
    assert f"2400 spans of {id_}" in text
    content = path.read_bytes()
    assert b"conv1" in content
    document = json.loads(answer(capsys, "trace", "export", id_, "--format", name, "-o", str(path), "--json"))
    assert document == {"run": id_, "path": str(path), "format": name, "bytes": len(content), "spans": 2400}
    assert path.read_bytes() == content


def test_traces_of_a_registry_on_a_server_are_read_like_those_in_a_folder(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    traced, plain, path = bench.record(), bench.record(trace=False), tmp_path / "trace.json"
    commands = (("inspect", traced, "--analysis", "all", "--json"), ("trace", "export", traced, "-o", str(path)))
    local, _ = (answer(capsys, *words) for words in commands)
    content = path.read_bytes()
    with service(bench.registry.home) as served:
        monkeypatch.setenv("BENCHLOCK_REGISTRY", served.url)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        assert json.loads(answer(capsys, *commands[0])) == json.loads(local)
        answer(capsys, *commands[1])
        assert path.read_bytes() == content
        assert f"{plain} has no trace" in answer(capsys, "inspect", plain, code=1)


def test_layers_of_two_runs_are_compared(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    slower = [{**LAYERS[0], "took": 70_000}, *LAYERS[1:]]
    runs = (bench.record(), bench.record(layers=slower, graph=LAYERS))
    text = answer(capsys, "compare", "--layers", *runs)
    assert "largest difference: conv" in text
    document = json.loads(answer(capsys, "compare", "--layers", *runs, "--json"))
    kinds, layers = document["tables"]
    assert kinds["rows"][0][0] == "conv"
    assert kinds["rows"][0][3] == pytest.approx(30e-6)
    assert sum(row[-1] for row in layers["rows"]) == pytest.approx(layers["facts"]["traced_difference_s"], rel=1e-9)
    lines = list(csv.DictReader(io.StringIO(answer(capsys, "compare", "--layers", *runs, "--format", "csv"))))
    assert len(lines) == len(LAYERS) + 1
    assert "--layers needs two runs" in answer(capsys, "compare", "--layers", runs[0], code=2)
    assert "leave one of the options out" in answer(capsys, "compare", "--layers", "--interleave", *runs, code=2)
