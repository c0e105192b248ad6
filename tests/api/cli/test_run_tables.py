"""Runs as a person reads them: nothing is left out that a figure needs, and nothing is too long for a line."""

import csv
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec import structs

from benchlock.api.cli import output
from benchlock.api.cli.compare_command import all_equivalent, print_comparison, warn_about_comparison
from benchlock.api.cli.run_history_commands import runs
from benchlock.api.cli.run_tables import (
    print_claims,
    print_outcome,
    print_repetition,
    print_run,
    print_runs,
)
from benchlock.api.schemas.run_documents import (
    claim_document,
    comparison_document,
    repetition_document,
    run_document,
)
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.evaluator.records.run_texts import format_interval
from benchlock.evaluator.records.run_types import CONTAINER_CPU, SELF_REPORTED, DamagedRun, Run, RunEnd, RunId
from benchlock.evaluator.records.timing_validity import KEY, calls_document
from benchlock.evaluator.statistics.metric_types import Calls, Interval, Metric, format_value
from benchlock.evaluator.statistics.paired_tests import PairedTests, compare_decisions
from benchlock.evaluator.workflows.claim_verdicts import Conditions, judge_claims
from benchlock.evaluator.workflows.compare import compare_runs
from benchlock.evaluator.workflows.repeat import repeat
from benchlock.registry.lock.lockfile import dataset_of, dump
from benchlock.registry.manifests.manifest_types import Model
from tests.support.evaluator.recorded import DONE, NOON, recorded
from tests.support.evaluator.releases import release
from tests.support.resolution.variants import variant

CLAIMED = variant({
    "model": {"claims": [{"metric": "top1", "value": 0.9, "tolerance": 0.01,
                          "dataset": {"name": "digits", "version": "*", "split": "test"}}]},
})  # fmt: skip
LOCK = CLAIMED.lock
TOP1 = Metric("top1", 0.75, "fraction", "higher", 200, Interval(0.68, 0.81), 1)
P50 = Metric("latency_p50", 0.0000421, "s", "lower", 900, Interval(0.000042, None), 1)
CALLS = Calls(900, 90, "thread", (structs.replace(P50, n=810),), (structs.replace(P50, name="cpu_time_p50"),))
DETAILS: dict[str, Any] = {
    KEY: calls_document(CALLS),
    "cpus": [1],
    "loadgen": {"version": "6.0.17", "valid": True, "sequence_sha256": "ab" * 32},
    "threads": {"requested": 1, "predictor": {"intra_op": 1}},
    "golden": {
        "samples": 4,
        "inputs": {"picture": {"largest": 0.0, "absolute": 0.001, "relative": 0}},
        "outputs": {"scores": {"largest": 1.19209e-07, "absolute": 1e-05, "relative": 0.0001}},
    },
}
END = structs.replace(
    DONE,
    metrics=(TOP1, P50),
    details=DETAILS,
    timings={"verification": 0.2, "run": 1.5},
    packages={"numpy": "2.4.0"},
    blobs={"pipeline-samples": Descriptor(digest_bytes(b"s"), 7200)},
)

INVALID = structs.replace(
    END,
    details=DETAILS
    | {
        KEY: calls_document(Calls(1000, 19, "thread", wall=0.53, cpu=0.09)),
        "loadgen": {
            "version": "6.0.17",
            "valid": False,
            "settings": {"target_latency_ns": 100_000},
            "results": {
                "result_perf_constraints_met": False,
                "result_query_count": 470,
                "result_overlatency_query_count": 464,
            },
        },
    },
)
WHY = "its latency bound was missed: 464 of 470 queries took longer than 100 µs (1 % may)"


@pytest.fixture(autouse=True)
def released(monkeypatch: pytest.MonkeyPatch) -> None:
    release(monkeypatch, LOCK.harness)


def run(end: RunEnd | None = END) -> Run:
    return recorded(end, lock=LOCK.id)


def test_a_figure_without_an_end_and_a_rate_of_arrival_have_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    whole, short = (structs.replace(P50, ci=Interval(end, end)) for end in (P50.value, None))
    rate = Metric("throughput", 157.4, "samples/s", "higher", 300, Interval(157.4, 157.4), 2)
    scenario = {
        "name": "server", "target_qps": 150, "target_latency": "10ms",
        "min_queries": 100, "min_duration": "1s", "warmup": 3,
    }  # fmt: skip
    server = variant({"request": {"scenario": scenario}}).lock
    print_outcome(run(structs.replace(END, metrics=(TOP1, short, rate))), server)
    shown = capsys.readouterr().out
    assert "-: the run is too short, or its calls are too correlated, for an interval" in shown
    assert "throughput: the arrival rate of queries as long as the model keeps up" in shown
    print_outcome(run(structs.replace(END, metrics=(TOP1, whole, rate))), LOCK)
    shown = capsys.readouterr().out
    assert "too short" not in shown
    assert "the rate at which queries arrive" not in shown
    assert "to verify" not in shown


def test_an_outcome_has_every_figure_with_its_interval_and_n(capsys: pytest.CaptureFixture[str]) -> None:
    print_outcome(run(), LOCK)
    shown = capsys.readouterr().out
    assert "digits 1.0.0 on digits 1.0.0 (test), onnxruntime 1.31.1" in shown
    assert ["top1", "0.7500", "[0.6800,", "0.8100]", "sampling", "200"] in [line.split() for line in shown.splitlines()]
    assert any(line.startswith("latency_p50") and "within this run" in line for line in shown.splitlines())
    assert "42.1 µs" in shown
    assert "90 of 900 calls were pre-empted (10.0%)" in shown
    assert "cpu_time_p50" in shown
    assert "flagged: 10.0% of calls were pre-empted (limit 5%)" in shown


def test_loadgens_verdict_stands_wherever_the_run_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    print_outcome(run(), LOCK)
    assert "LoadGen result: VALID\n" in capsys.readouterr().out
    print_outcome(run(INVALID), LOCK)
    assert f"LoadGen result: INVALID: {WHY}\n" in capsys.readouterr().out
    print_run(run(INVALID), LOCK, None)
    assert "6.0.17, INVALID (latency bound)" in capsys.readouterr().out
    print_runs([run(INVALID)], {LOCK.id: LOCK})
    listed = capsys.readouterr().out
    assert "INVALID (latency bound); flagged: off-CPU for 83% of call time" in listed
    assert listed.splitlines()[0].split()[-2:] == ["metrics", "remarks"]
    print_repetition(repeat(lambda _: run(INVALID), {}, 2), LOCK)
    assert capsys.readouterr().out.count(f"INVALID: {WHY}") == 2
    found = compare_runs([(LOCK, run()), (LOCK, run(INVALID))])
    print_comparison(found)
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    rows = {cells[0]: [cell.strip() for cell in cells[1:] if cell.strip()] for cells in lines}
    assert (rows["LoadGen"], rows["flagged"]) == (["VALID", "INVALID (latency bound)"], ["yes", "yes"])
    warn_about_comparison(found.arms[1].runs[0])
    warned = capsys.readouterr().err
    assert f"INVALID: {WHY}" in warned
    assert "off-CPU for 83.0% of call time" in warned


@pytest.mark.parametrize("as_json", [True, False])
def test_a_damaged_run_is_listed_without_figures_and_the_command_fails(*, as_json: bool) -> None:
    sound = run()
    damaged = DamagedRun(RunId("run/" + "0" * 26), "the database is damaged: a record is missing")
    records = SimpleNamespace(list_entries=lambda **_: (sound, damaged))
    opened = SimpleNamespace(
        records=records, catalogue=SimpleNamespace(get_lock=lambda _: dump(LOCK), find_lock=lambda _: LOCK.id)
    )
    result = CliRunner().invoke(runs, obj=SimpleNamespace(opened=opened, as_json=as_json))
    assert result.exit_code == 4
    assert f"error: {damaged.id}: {damaged.damage}" in result.stderr
    if as_json:
        document = json.loads(result.stdout)
        assert [one["run"] for one in document["runs"]] == [sound.id]
        assert document["damaged"] == [{"id": damaged.id, "damage": damaged.damage}]
    else:
        (line,) = (line for line in result.stdout.splitlines() if damaged.id in line)
        assert " damaged " in line
        assert " withheld " in line


def test_no_line_is_too_long_of_a_run_that_is_flagged_and_invalid(capsys: pytest.CaptureFixture[str]) -> None:
    told = " * Run unsuccessful.  * Processed 470 queries.  * Would need to run at least 51799 more queries,  with ..."
    results = {"early_stopping_met": False, "early_stopping_result": told + " under latency" * 9}
    details = {**INVALID.details, "loadgen": {"valid": False, "results": results}}
    print_outcome(run(structs.replace(INVALID, details=details)), LOCK)
    print_repetition(repeat(lambda _: run(INVALID), {}, 2), LOCK)
    shown = capsys.readouterr().out
    assert "or the calls waited for something else" in " ".join(shown.split())
    assert all(len(line) <= 150 for line in shown.splitlines()), shown


def test_the_estimates_of_early_stopping_are_printed_and_in_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    results = {"result_query_count": 700, "early_stopping_met": True, "early_stopping_latency_ms": 42_000}
    loadgen = {"valid": True, "settings": {"scenario": "MultiStream"}, "results": results}
    stopped = run(structs.replace(END, details={**DETAILS, "loadgen": loadgen}))
    print_outcome(stopped, LOCK)
    words = "with 99% confidence, 99% of queries take at most 42 µs"
    assert f"  LoadGen early stopping, performance: {words}\n" in capsys.readouterr().out
    (document,) = run_document(stopped)["early_stopping"]
    assert (document["queries"], document["estimates"]) == (700, {"99": 4.2e-05})
    assert not run_document(run())["early_stopping"]


def test_documents_have_loadgens_verdict_with_the_reason() -> None:
    told = [(document["valid"], document["invalid_reason"]) for document in map(run_document, (run(), run(INVALID)))]
    assert told == [(True, None), (False, WHY)]
    without = run_document(run(structs.replace(END, details={})))
    assert (without["valid"], without["invalid_reason"]) == (None, None)


def test_an_outcome_says_both_shares_of_a_run_that_was_without_the_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    print_outcome(run(INVALID), LOCK)
    shown = capsys.readouterr().out
    assert "19 of 1000 calls were pre-empted (1.9%), off-CPU for 83.0% of call time" in shown
    assert "flagged: 1.9% of calls were pre-empted, off-CPU for 83.0% of call time" in shown
    assert run_document(run(INVALID))["calls"]["without_cpu"] == pytest.approx(0.44 / 0.53)


def test_a_document_has_the_flag_and_the_figures_without_preemption() -> None:
    calls = run_document(run())["calls"]
    assert (calls["n"], calls["preempted"], calls["flagged"], calls["scope"]) == (900, 90, True, "thread")
    assert [(one["name"], one["n"]) for one in calls["without_preemption"]] == [("latency_p50", 810)]
    assert [one["name"] for one in calls["cpu_time"]] == ["cpu_time_p50"]
    assert run_document(run(None))["calls"] is None


def test_a_latency_without_the_hosts_delay_stands_beside_the_one_with_it(capsys: pytest.CaptureFixture[str]) -> None:
    calls = structs.replace(CALLS, preempted=1, undelayed=(P50,))
    metrics = (structs.replace(P50, value=0.004),)
    late = run(structs.replace(END, metrics=metrics, details={KEY: calls_document(calls)}))
    print_outcome(late, LOCK)
    print_runs([late], {LOCK.id: LOCK})
    shown = " ".join(capsys.readouterr().out.split())
    assert "without the host's delay value" in shown
    flag = "flagged: latency_p50 is 4 ms, and 42.1 µs without the host's delay"
    assert f"{flag}: the host issued queries late, so timings are unreliable" in shown
    assert "flagged: queries issued late" in shown
    document = run_document(late)
    assert document["calls"]["flagged"] is True
    assert [(one["name"], one["value"]) for one in document["calls"]["without_delay"]] == [("latency_p50", P50.value)]
    assert flag.removeprefix("flagged: ") in document["times_unusable"]


@pytest.mark.parametrize("end", [END, INVALID], ids=["valid", "invalid"])
def test_all_that_the_process_of_a_model_with_code_says_is_marked(
    capsys: pytest.CaptureFixture[str], end: RunEnd
) -> None:
    calls = calls_document(structs.replace(CALLS, wall=0.53, cpu=0.09))
    marked = run(structs.replace(end, details={**end.details, KEY: calls, SELF_REPORTED: ["latency_p50"]}))
    document = run_document(marked)
    figures = (*document["calls"]["without_preemption"], *document["calls"]["cpu_time"])
    assert [one["self_reported"] for one in figures] == [True, True]
    assert (document["calls"]["self_reported"], document["valid_self_reported"]) == (True, True)
    print_outcome(marked, LOCK)
    print_runs([marked], {LOCK.id: LOCK})
    lines = capsys.readouterr().out.splitlines()
    for start in ("latency_p50", "cpu_time_p50", "  LoadGen result"):
        found = [line for line in lines if line.startswith(start)]
        assert found, start
        assert all("(self-reported)" in line for line in found), found
    assert "(limit 5% each) (self-reported)" in " ".join(" ".join(lines).split())
    assert "the time without the CPU (self-reported)" in lines[-1] or "calls pre-empted (self-reported)" in lines[-1]
    honest = run_document(run(end))
    assert (honest["calls"]["self_reported"], honest["valid_self_reported"]) == (False, False)
    unmarked = structs.replace(end, details={**end.details, SELF_REPORTED: ["top1"]})
    print_outcome(run(unmarked), LOCK)
    assert capsys.readouterr().out.count("self-reported") == 1


def test_self_reported_times_stand_beside_what_the_runner_saw(capsys: pytest.CaptureFixture[str]) -> None:
    details = {**DETAILS, SELF_REPORTED: ["latency_p50"], "performance": {"queries": 900}}
    end = structs.replace(END, details=details, timings={**END.timings, CONTAINER_CPU: 1.2})
    print_outcome(run(end), LOCK)
    shown = capsys.readouterr().out
    assert "observed by the runner: 1.5 s and 1.2 s of CPU, model start included; 900 queries (self-reported)" in shown
    assert "calls were pre-empted (10.0%) (self-reported)" in shown
    seen = {"seconds": 1.5, "cpu_seconds": 1.2, "queries": 900, "seconds_a_query": 1.5 / 900}
    assert run_document(run(end))["observed"] == seen
    print_run(run(end), LOCK, None)
    assert "\ndurations; phases timed by the harness are self-reported\n" in capsys.readouterr().out
    print_outcome(run(structs.replace(end, timings={"run": 1.5}, details={**details, "performance": 1})), LOCK)
    assert "observed by the runner: 1.5 s, model start included\n" in capsys.readouterr().out
    assert run_document(run())["observed"] is None


def test_what_stands_beside_a_peak_is_said_to_be_no_confidence_interval(capsys: pytest.CaptureFixture[str]) -> None:
    peak = Metric("peak_qps", 510.0, "queries/s", "higher", 9, Interval(510.0, 530.0), 1)
    print_outcome(run(structs.replace(END, metrics=(P50, peak))), LOCK)
    print_outcome(run(), LOCK)
    assert capsys.readouterr().out.count("peak_qps: highest rate sustained and lowest rate not sustained; not a ") == 1


def test_a_document_marks_an_interval_that_is_the_bracket_of_a_search() -> None:
    peak = Metric("peak_qps", 510.0, "queries/s", "higher", 9, Interval(510.0, 530.0), 1)
    best = Metric("optimal_batch", 8.0, "samples", "none", 4, Interval(4.0, 8.0), 1)
    searched = run(structs.replace(END, metrics=(P50, peak, best)))
    kinds = {"latency_p50": "within run", "peak_qps": "bracket", "optimal_batch": "bracket"}
    assert run_document(searched)["intervals"] == kinds


def test_golden_tensors_without_their_number_of_samples_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    print_run(run(), LOCK, None)
    assert "golden tensors: 4 samples" in capsys.readouterr().out
    unsaid = {"golden": {"inputs": DETAILS["golden"]["inputs"]}}
    print_run(run(structs.replace(END, details=DETAILS | unsaid)), LOCK, None)
    assert "golden tensors" not in capsys.readouterr().out


def test_a_run_is_shown_with_its_question_and_its_conditions(capsys: pytest.CaptureFixture[str]) -> None:
    print_run(run(), LOCK, None)
    shown = capsys.readouterr().out
    for part in (
        "scenario   single_stream, min queries 662, min duration 1 s", "1 CPU,", "lock", "2 of A CPU", "24.0 GiB",
        "Linux 6.1", "pinned to  CPU 1",
        "verification  200 ms", "6.0.17, VALID", "1 requested, intra_op 1", "7.0 KiB", "numpy 2.4.0",
    ):  # fmt: skip
        assert part in shown, part
    assert "avx2" not in shown  # a hundred flags are no reading


def test_a_run_is_shown_with_what_its_golden_tensors_found(capsys: pytest.CaptureFixture[str]) -> None:
    print_run(run(), LOCK, None)
    shown = capsys.readouterr().out.splitlines()
    start = shown.index("golden tensors: 4 samples, all within the tolerance")
    assert shown[start + 1 : start + 4] == [
        "  input picture: maximum difference 0 (tolerance 0.001 + 0 * |expected|)",
        "  output scores: maximum difference 1.19209e-07 (tolerance 1e-05 + 0.0001 * |expected|)",
        "",
    ]


def test_golden_tensors_of_a_record_without_tolerances_are_shown_without(capsys: pytest.CaptureFixture[str]) -> None:
    before = DETAILS | {"golden": {"samples": 2, "inputs": {}, "outputs": {"scores": {"largest": 0.5}}}}
    print_run(run(structs.replace(END, details=before)), LOCK, None)
    assert "  output scores: maximum difference 0.5\n" in capsys.readouterr().out
    print_run(run(structs.replace(END, details={})), LOCK, None)
    assert "golden" not in capsys.readouterr().out


def test_a_run_that_failed_is_shown_with_its_last_lines(capsys: pytest.CaptureFixture[str]) -> None:
    failed = run(RunEnd(outcome="failed", ended_at=NOON, failure_class="load", failure_message="it broke"))
    print_outcome(failed, LOCK)
    print_run(failed, LOCK, "\n".join(f"line {number}" for number in range(40)))
    shown = capsys.readouterr().out
    assert "load: it broke" in shown
    assert "line 39" in shown
    assert "line 19" not in shown


def test_what_an_imported_record_says_breaks_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    odd = {"cpus": 3, "loadgen": [], "threads": "all", "not_enforced": {}, KEY: 7, "golden": {"inputs": 3}}
    print_run(recorded(structs.replace(END, details=odd), lock=LOCK.id, cpu_flags=1, memory="much"), LOCK, None)
    print_runs([recorded(structs.replace(END, details=odd))], {})
    assert "numpy 2.4.0" in capsys.readouterr().out


def test_runs_are_told_apart_by_what_ran(capsys: pytest.CaptureFixture[str]) -> None:
    failed = RunEnd(outcome="failed", ended_at=NOON, failure_class="load", failure_message="it broke")
    print_runs([run(), run(None), run(failed)], {LOCK.id: LOCK})
    _, _, done, running, broken = capsys.readouterr().out.splitlines()
    assert "digits 1.0.0" in done
    assert f"{LOCK.id[:15]}  " in done
    assert "top1 0.7500, latency_p50 42.1 µs" in done
    assert "flagged: 10% of calls pre-empted" in done
    assert "running" in running
    assert broken.rstrip().endswith("load")


def test_a_claim_is_shown_with_the_answer_and_the_interval(capsys: pytest.CaptureFixture[str]) -> None:
    model = next(one for one in CLAIMED.manifests.values() if isinstance(one, Model))
    judged = judge_claims(model, dataset_of(LOCK), (TOP1, P50))
    print_claims(judged)
    shown = capsys.readouterr().out
    assert "0.9000 ± 0.0100" in shown
    assert "0.7500 [0.6800, 0.8100]" in shown
    assert "does not hold: the whole interval is below the claim, which is worse" in shown
    document = claim_document(judged[0])
    assert (document["answer"], document["measured"], document["ci"]) == ("does not hold", 0.75, [0.68, 0.81])
    print_claims(())
    assert capsys.readouterr().out == ""


def test_claims_with_one_reason_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    on = {"name": "digits", "version": "*", "split": "test"}
    stated = ("latency_p50", "latency_p90", "peak_qps", "cold_start")
    claims = [{"metric": name, "value": 1.0, "tolerance": 0.1, "dataset": on} for name in stated]
    manifests = variant({"model": {"claims": claims}}).manifests.values()
    model = next(one for one in manifests if isinstance(one, Model))
    metrics = (P50, structs.replace(P50, name="latency_p90"))
    print_claims(judge_claims(model, dataset_of(LOCK), metrics, Conditions("single_stream", "this run is flagged: so")))
    shown = capsys.readouterr().out.splitlines()
    assert shown[-2:] == [
        "  latency_p50, latency_p90: can't be said yet: this run is flagged: so",
        "  not measured by this scenario: peak_qps, cold_start",
    ]
    assert len(shown) == 7  # an empty line, two of the head, two claims, two reasons


def test_a_repetition_says_how_closely_figures_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    repetition = repeat(lambda _: run(), {"latency_p50": 0.02}, 9)
    print_repetition(repetition, LOCK)
    shown = capsys.readouterr().out
    assert "6 runs: all intervals are within the requested widths after 6 runs" in shown
    assert "2.00%" in shown
    assert shown.count("flagged: run/") == 6
    document = repetition_document(repetition)
    assert json.dumps(document, allow_nan=False)
    assert (len(document["runs"]), document["narrow"], document["metrics"][1]["until"]) == (6, True, 0.02)


def test_one_run_has_no_width(capsys: pytest.CaptureFixture[str]) -> None:
    repetition = repeat(lambda _: run(), {}, 1)
    print_repetition(repetition, LOCK)
    shown = capsys.readouterr().out
    assert "[-, -]" in shown
    assert "-: too few runs to estimate the spread; at least 6 are needed (--repeat 6)" in shown
    print_repetition(repeat(lambda _: run(), {}, 6), LOCK)
    assert "too few runs" not in capsys.readouterr().out
    assert repetition_document(repetition)["metrics"][1]["width"] is None


@pytest.mark.parametrize(("n", "shown"), [(1, "-"), (2, "[0.994 s, 0.994 s]")])
def test_one_value_has_no_interval(n: int, shown: str) -> None:
    assert format_interval(Metric("cold_start", 0.994, "s", "lower", n, Interval(0.994, 0.994), 1)) == shown.replace(
        "0.994 s", format_value(0.994, "s")
    )


def test_a_comparison_stands_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    other = variant({"model": {"name": "other"}, "request": {"model": {"name": "other", "version": "*"}}}).lock
    found = compare_runs([(LOCK, run()), (other, recorded(END, lock=other.id))])
    print_comparison(found)
    shown = capsys.readouterr().out
    assert "digits 1.0.0" in shown.splitlines()[0]
    assert "other 1.0.0" in shown.splitlines()[0]
    assert "other 1.0.0 against digits 1.0.0, not interleaved" in shown
    assert max(map(len, shown.splitlines())) <= 150
    assert "does not show how runs vary" in shown
    row = next(line for line in shown.splitlines() if line.startswith("top1") and "undecided" in line)
    assert " exact " in row
    assert "[1, 1]" not in row
    document = comparison_document(found)
    assert json.dumps(document, allow_nan=False)
    assert (document["comparable"], document["interleaved"], len(document["runs"])) == (True, False, 2)
    assert [one["metric"] for one in document["findings"]] == ["top1", "latency_p50"]


def test_a_comparison_is_one_table_in_csv(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    other = variant({"model": {"name": "other"}, "request": {"model": {"name": "other", "version": "*"}}}).lock
    monkeypatch.setattr(output.settings, "format", "csv")
    print_comparison(compare_runs([(LOCK, run()), (other, recorded(END, lock=other.id))]))
    rows = {row["metric"]: row for row in csv.DictReader(capsys.readouterr().out.splitlines())}
    assert {"top1", "latency_p50"} <= set(rows)
    assert (rows["top1"]["baseline"], rows["top1"]["compared"]) == ("digits 1.0.0", "other 1.0.0")
    assert rows["top1"]["baseline value"] == rows["top1"]["compared value"]
    assert rows["top1"]["answer"] == "undecided"


def test_the_text_of_a_comparison_says_that_it_is_not_comparable(capsys: pytest.CaptureFixture[str]) -> None:
    other = variant({"dataset": {"version": "1.1.0"}}).lock
    second = recorded(END, lock=other.id)
    print_comparison(compare_runs([(LOCK, run()), (other, second)]))
    shown = capsys.readouterr().out
    assert f"not comparable: {second.id}: the dataset differs" in shown.splitlines()
    row = next(line for line in shown.splitlines() if line.startswith("top1") and "undecided" in line)
    assert "exact" not in row
    assert "top1: undecided: the runs have different datasets, versions or splits: no common samples" in shown


def test_a_comparison_with_zero_has_a_difference_and_no_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        (
            LOCK,
            recorded(structs.replace(END, metrics=(structs.replace(END.metrics[0], value=value),)), lock=LOCK.id),
        )
        for value in (0.0, 0.5)
    ]
    found = compare_runs(runs)
    print_comparison(found)
    assert "+0.5 from 0 (no ratio) on these samples" in " ".join(capsys.readouterr().out.split())
    document = comparison_document(found)
    assert json.dumps(document, allow_nan=False)
    first = document["findings"][0]["ratio"]
    assert (first["ratio"], first["ci"]) == (None, [None, None])


def test_a_comparison_says_how_the_models_differ_sample_by_sample(capsys: pytest.CaptureFixture[str]) -> None:
    number = np.arange(10_000)
    test = compare_decisions(number >= 200, (number < 200) | (number >= 500))
    locks = [
        variant({"model": {"name": name}, "request": {"model": {"name": name, "version": "*"}}}).lock
        for name in ("other", "third")
    ]
    runs = [(LOCK, run()), *((lock, recorded(END, lock=lock.id)) for lock in locks)]
    found = compare_runs(runs, lambda _, others: [PairedTests({"top1": test}) for _ in others])
    print_comparison(found)
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("of 10000 samples, 300 only the first predicts correctly, 200 only the second") == 2
    assert "p = 1.8e-05 after Holm's correction for 2 comparisons, 8.9e-06 before" in shown
    document = comparison_document(found)
    assert json.dumps(document, allow_nan=False)
    first = document["findings"][0]
    assert (first["metric"], first["answer"]) == ("top1", "different")
    assert first["test"]["ci"] == [test.ci.low, test.ci.high]
    assert (first["test"]["only_first"], first["test"]["only_second"], first["test"]["comparisons"]) == (300, 200, 2)
    assert [one["test"] for one in document["findings"] if one["metric"] == "latency_p50"] == [None, None]


def test_a_margin_of_what_cannot_be_compared_is_not_met(capsys: pytest.CaptureFixture[str]) -> None:
    found = compare_runs([(LOCK, recorded(lock=LOCK.id)), (LOCK, recorded(lock=LOCK.id))])
    assert all_equivalent(found, {})
    assert not all_equivalent(found, {"throughput": 0.1})
    assert "cannot compare throughput: not every run has it" in capsys.readouterr().err


def test_clocks_that_disagree_make_times_unusable_wherever_a_run_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """LoadGen may call the run VALID all the same."""
    details = {"loadgen": {"valid": True, "clocks_agree": False}}
    unclear = recorded(structs.replace(END, details=details), lock=LOCK.id)
    print_outcome(unclear, LOCK)
    assert "times are unusable: LoadGen's clock and benchlock's own disagree" in capsys.readouterr().out
    print_runs([unclear], {})
    assert "times unusable: clocks disagree" in capsys.readouterr().out
    print_repetition(repeat(lambda _: unclear, {}, 1), LOCK)
    assert f"times unusable: {unclear.id}" in capsys.readouterr().out
    compared = compare_runs([(LOCK, unclear), (LOCK, recorded(END, lock=LOCK.id))])
    print_comparison(compared)
    assert "disagree on the median latency" in capsys.readouterr().out
    latency = next(one for one in comparison_document(compared)["findings"] if one["metric"] == "latency_p50")
    assert latency["answer"] == "undecided"
    assert "unusable" in run_document(unclear)["times_unusable"]
    calm = {"loadgen": {"valid": True, "clocks_agree": True}}
    assert run_document(recorded(structs.replace(END, details=calm)))["times_unusable"] is None
