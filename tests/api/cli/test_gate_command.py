"""What `gate` prints and writes: the verdict, the error rates, and Markdown without markup from others."""

import json
import re
from pathlib import Path

import pytest

from benchlock.api.cli.gate_command import format_report, gate_document, print_gate
from benchlock.api.cli.main import run
from benchlock.evaluator.workflows.gate import GateResult
from benchlock.registry.lock.lockfile import dump
from tests.support.evaluator.gated import A, bench, gate

METRICS = ", ".join(sorted(A.metrics))
NOISY = (0.97, 1.10, 0.98, 1.08, 0.96, 1.06)


def printed(result: GateResult, capsys: pytest.CaptureFixture[str]) -> str:
    print_gate(result)
    return capsys.readouterr().out


def test_the_verdict_is_printed_with_its_error_rates(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(gate(bench(slowness=1.2)), capsys)
    assert "candidate 1.0.0 against baseline 1.0.0" in text
    assert re.search(
        r"latency_p50 +1 ms +1.2 ms +\+20\.00% +\[\+19\.\d\d%, \+20\.\d\d%\] +5\.00% +9\d% +regression", text
    )
    assert "top1: equal in all runs of a lock" in text
    assert "false-positive rate: at most 5%, if the candidate is no worse" in text
    assert re.search(r"power: latency_p50 9\d%; the probability of a regression verdict with 6 rounds", text)
    assert text.endswith("verdict: regression\n")


def test_a_single_round_is_printed_without_error_rates(capsys: pytest.CaptureFixture[str]) -> None:
    result = gate(bench(top1=0.5), {"top1": 0.01}, rounds=None)
    text = " ".join(printed(result, capsys).split())
    assert re.search(r"top1 0.7500 0.5000 -33.33% - 1.00% - regression", text)
    assert "each lock ran once" in text
    assert "equal in all runs" not in text
    assert "at most" not in text
    assert gate_document(result)["false_positive_rate"] is None
    report = format_report(result)
    assert "\n1 round on " in report
    assert "baseline, again" not in report


def test_an_undecided_gate_names_the_option_for_more_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(printed(gate(bench(noise=NOISY)), capsys).split())
    assert re.search(r"about \d+ rounds would decide \(benchlock gate --rounds N\)", text)
    assert "verdict: undecided" in text


def test_runs_on_different_hosts_are_printed_without_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(gate(bench(slowness=1.2, cpu_model="Another CPU")), capsys)
    assert "not comparable: run/" in text
    assert "regression" not in text
    assert "false-positive" not in text
    assert text.endswith("verdict: not comparable\n")


def test_the_document_has_the_verdict_the_rates_and_every_run() -> None:
    document = json.loads(json.dumps(gate_document(gate(bench()))))
    assert document["verdict"] == "passed"
    assert (document["false_positive_rate"], document["level"], document["rounds"]) == (0.05, 0.05, 6)
    assert document["baseline"]["model"]["name"] == "baseline"
    assert document["candidate"]["lock"].startswith("sha256:")
    assert {metric["metric"]: metric["answer"] for metric in document["metrics"]} == {
        "top1": "passed",
        "latency_p50": "passed",
    }
    assert len(document["comparison"]["runs"]) == 18


def test_the_report_is_a_table_with_the_ids_of_locks_and_runs() -> None:
    result = gate(bench(slowness=1.2))
    report = format_report(result)
    assert report.startswith("### benchlock gate: regression\n")
    assert "| `latency_p50` | 1 ms | 1.2 ms |" in report
    for arm in result.comparison.arms:
        assert f"`{arm.lock.id}`" in report
        assert all(f"`{run.id}`" in report for run in arm.runs)
    tables = [line for line in report.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in tables} == {9, 5, 4}


def test_the_report_has_no_markup_from_a_host() -> None:
    report = format_report(gate(bench(cpu_model="<img src=x>|@everyone`")))
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", report)
    assert "<img" not in outside.replace("\\<", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--candidate a.lock", "Missing option '--baseline'"),
        ("--baseline a.lock --candidate a.lock --margin latency_p50=5", "expected METRIC=SHARE"),
        ("--baseline a.lock --candidate a.lock --rounds 0", "is not in the range x>=1"),
        ("--baseline a.lock --candidate a.lock --rounds 2 --margin latency_p50=5%", "cannot be gated with 2 rounds"),
        ("--baseline= --candidate a.lock", "the baseline is empty"),
        ("--baseline a.lock --candidate=", "the candidate is empty"),
        ("--baseline a.lock --candidate a.lock --margin top1=", "incomplete value 'top1='"),
        ("--baseline a.lock --candidate a.lock --margin top1=", f"use --margin latency_p50=2%; metrics: {METRICS}"),
        ("--baseline a.lock --candidate a.lock --margin accuracy=1%", "unknown metric 'accuracy'"),
        ("--baseline a.lock --candidate a.lock --margin accuracy=1%", f"that all locks measure: {METRICS}"),
        ("--baseline b.lock --candidate a.lock", "cannot read b.lock"),
        ("--baseline a.lock --candidate a.lock", "needs the margin of at least one metric"),
        ("--baseline a.lock --candidate a.lock --margin top1=1% --markdown none/r.md", "folder not found"),
    ],
)
def test_invalid_calls_run_nothing(
    words: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.lock").write_text(dump(A))
    assert run(["--registry", str(tmp_path / "registry"), "gate", *words.split()]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "registry").exists()
