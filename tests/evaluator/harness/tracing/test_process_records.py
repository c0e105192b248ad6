"""The processes of an experiment as one experiment."""

from typing import Any

import numpy as np

from benchlock.evaluator.harness.tracing.process_records import ProcessRecord, merge_records


def record(duration: int, *, type_: str = "Conv", name: str = "conv", **document: Any) -> ProcessRecord:  # noqa: ANN401
    """Two blocks of two calls with one row."""
    tensors = {
        "block": np.array([0, 0, 1, 1]),
        "call_duration": np.full(4, duration),
        "start": np.full((4, 1), 7),
        "duration": np.full((4, 1), duration),
    }
    row = {"level": "layer", "type": type_, "variant": None, "name": name}
    return ProcessRecord({"rows": [row], "incomplete": None, "notes": [], "counters": None, **document}, tensors, "")


def test_calls_follow_each_other_and_rows_are_those_of_the_first_process() -> None:
    document, tensors = merge_records([record(5, notes=["a"]), record(6, name="inserted_2", notes=["b", "a"])])
    assert tensors["process"].tolist() == [0] * 4 + [1] * 4
    assert tensors["block"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert tensors["duration"][:, 0].tolist() == [5] * 4 + [6] * 4
    assert ([row["name"] for row in document["rows"]], document["notes"]) == (["conv"], ["a", "b"])
    assert (document["incomplete"], document["counters"]) == (None, None)


def test_a_process_with_other_rows_has_unknown_times_and_makes_the_experiment_incomplete() -> None:
    document, tensors = merge_records([record(5), record(6, type_="Relu")])
    assert document["incomplete"] == "process 1 has other rows than process 0"
    assert tensors["duration"][:, 0].tolist() == [5] * 4 + [-1] * 4
    assert tensors["call_duration"].tolist() == [5] * 4 + [6] * 4


def test_rows_in_another_order_are_those_of_the_first_process_by_type_and_name() -> None:
    def process(*names: tuple[str, str]) -> ProcessRecord:
        rows = [{"level": "layer", "type": type_, "variant": None, "name": name} for type_, name in names]
        duration = np.array([[ord(name[0]) for _, name in names]])
        tensors = {"block": np.array([0]), "start": duration, "duration": duration}
        document = {"rows": rows, "incomplete": None, "notes": [], "counters": None}
        return ProcessRecord(document, tensors, "")

    one = process(("Const", "a"), ("Const", "b"), ("Conv", "inserted_1"), ("Conv", "d"))
    other = process(("Conv", "d"), ("Conv", "jnserted_2"), ("Const", "b"), ("Const", "a"))
    document, tensors = merge_records([one, other])
    assert document["incomplete"] is None
    assert tensors["duration"].tolist() == [[ord(name) for name in letters] for letters in ("abid", "abjd")]
    assert tensors["duration"].flags.c_contiguous  # safetensors would write other arrays in another order
    document, _ = merge_records([one, process(("Const", "a"), ("Const", "b"), ("Conv", "d"))])
    assert document["incomplete"] == "process 1 has other rows than process 0"


def test_counters_are_added_and_unknown_where_a_process_could_not_read_them() -> None:
    counters = [{"cycles": count, "faults": 2, "reason": "PMU not available"} for count in (None, 3)]
    document, _ = merge_records([record(5, counters=one) for one in counters])
    assert document["counters"] == {"cycles": None, "faults": 4, "reason": "PMU not available"}
