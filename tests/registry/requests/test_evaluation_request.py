"""Requests: as written, and as understood."""

from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.requests.evaluation_request import (
    Limits,
    Request,
    Scenario,
    conditions_of,
    derive_seed,
    parse_locked_request,
    parse_request,
    parse_time,
    read_request,
)
from benchlock.registry.text.yaml import read_yaml

ROOT = Path(__file__).resolve().parents[3]
CASES = ROOT / "tests" / "cases" / "requests"
GOOD = sorted((*(CASES / "good").glob("*.yaml"), *(ROOT / "examples").glob("*/requests/*.yaml")))
BAD = sorted((CASES / "bad").glob("*.yaml"))
FULL = (CASES / "good" / "full.yaml").read_text()


def with_scenario(settings: str, metrics: str = "[]") -> Request:
    lines = [line for line in FULL.splitlines() if not line.startswith(("scenario", "metrics", "equivalence"))]
    return read_request("\n".join([*lines, f"scenario: {settings}", f"metrics: {metrics}"]), "request.yaml")


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_request_is_refused_with_the_words_of_its_case(path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_request(path.read_bytes(), "request.yaml")
    assert f"{caught.value}\n" == path.with_suffix(".txt").read_text()


def test_every_bad_case_has_its_words() -> None:
    assert len(BAD) > 20
    assert {path.stem for path in (CASES / "bad").glob("*.txt")} == {path.stem for path in BAD}


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_request_is_one_again_when_a_lock_carries_it(path: Path) -> None:
    request = read_request(path.read_bytes(), path.name)
    assert parse_request(request.document, "the lock's request") == request
    assert conditions_of(request.document) == request.conditions


def test_a_request_is_kept_as_written() -> None:
    """As parsed: strings untouched, absent keys absent."""
    request = read_request(FULL, "request.yaml")
    assert request.document == read_yaml(FULL, "request.yaml").value
    assert request.document["limits"]["time"] == "10m"
    assert "as_of" not in request.document


def test_a_request_is_understood() -> None:
    request = read_request(FULL, "request.yaml")
    assert request.limits == Limits(600.0, 2 * 1024**3, 1, 256)
    assert request.scenario == Scenario("single_stream", {"min_queries": 662, "min_duration": 1.0, "warmup": 8})
    assert request.metrics == ("top1", "top5", "latency_p50", "latency_p90", "latency_p99")
    assert request.prereleases == {"framework"}
    assert request.equivalence == {"latency_p50": 0.1}
    assert request.as_of is None


def test_what_may_be_left_out() -> None:
    request = read_request((CASES / "good" / "least.yaml").read_bytes(), "request.yaml")
    assert request.scenario == Scenario("accuracy", {"batch": 1, "warmup": 0})
    assert request.limits == Limits(5400.0, 500_000_000, 1, 64)
    assert (request.metrics, request.prereleases, request.equivalence) == ((), frozenset(), {})


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("{name: accuracy, batch: 8, warmup: 2}", {"batch": 8, "warmup": 2}),
        (
            "{name: multi_stream, min_queries: 9, min_duration: 250ms, samples_per_query: 4, warmup: 0}",
            {"min_queries": 9, "min_duration": 0.25, "samples_per_query": 4, "warmup": 0},
        ),
        (
            "{name: server, min_queries: 9, min_duration: 2m, target_qps: 10, target_latency: 15ms, warmup: 1}",
            {"min_queries": 9, "min_duration": 120.0, "target_qps": 10, "target_latency": 0.015, "warmup": 1},
        ),
        (
            "{name: offline, min_samples: 100, min_duration: 0s, warmup: 1}",
            {"batch": 1, "min_samples": 100, "min_duration": 0.0, "warmup": 1},
        ),
        ("{name: batch_sweep, batches: [1, 2, 4], warmup: 1}", {"batches": [1, 2, 4], "warmup": 1}),
        ("{name: cold_start, repeats: 3, warmup: 0}", {"repeats": 3, "warmup": 0}),
    ],
)
def test_each_scenario_has_its_settings(text: str, settings: dict[str, Any]) -> None:
    assert with_scenario(text).scenario.settings == settings


def test_seeds_follow_from_the_one_seed() -> None:
    """The first four bytes of a SHA-256: these three were computed by sha256sum."""
    seeds = read_request(FULL, "request.yaml").seeds
    assert (seeds.qsl, seeds.sample_index, seeds.schedule) == (0x3476D6A7, 0x23ACA86D, 0xAE1F0361)
    assert derive_seed(7, "qsl") == seeds.qsl
    assert derive_seed(8, "qsl") != seeds.qsl


def test_a_document_with_a_time_is_a_request_again() -> None:
    """An --as-of time becomes part of the request."""
    original = read_request(FULL, "request.yaml")
    again = parse_request(original.document | {"as_of": "2026-11-20T12:00:00Z"}, "the lock's request")
    assert again.as_of == datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert (again.scenario, again.seeds, again.limits) == (original.scenario, original.seeds, original.limits)
    with pytest.raises(InvalidInputError) as caught:
        parse_request(original.document | {"seed": "7"}, "the lock's request")
    assert caught.value.where == "seed (the lock's request)"


@pytest.mark.parametrize("text", ["yesterday", "2026-11-20", "2026-11-20T12:00:00", ""])
def test_a_time_has_a_zone(text: str) -> None:
    with pytest.raises(InvalidInputError, match="is not a time with a zone"):
        parse_time(text)


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "noon", "2026-11-20T12:00"])
def test_a_time_that_no_calendar_has_in_utc_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="not a time with a zone"):
        parse_time(text)


Fault = tuple[tuple[str, ...], str, Any]
"""The path of a key, the key in its place, and its value."""


def keys_of(value: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The path of each key of a request, with its value."""
    for key, inner in value.items():
        yield (*path, key), inner
        if isinstance(inner, dict):
            yield from keys_of(inner, (*path, key))


def faults_of(document: dict[str, Any]) -> list[Fault]:
    """Misspell each key, give it a value of another type, and one that breaks its rule."""
    broken = {str: "!", int: -1, float: -1.0, list: ["!"]}
    faults: list[Fault] = []
    for path, value in keys_of(document):
        faults += [(path, f"{path[-1]}x", value), (path, path[-1], "!" if isinstance(value, bool) else True)]
        if type(value) in broken and path[-1] not in ("split", "os", "arch", "device"):
            faults.append((path, path[-1], broken[type(value)]))
    return faults


def with_faults(document: dict[str, Any], *faults: Fault) -> dict[str, Any]:
    document = deepcopy(document)
    for (*above, last), key, value in faults:
        mapping = document
        for one in above:
            mapping = mapping[one]
        del mapping[last]
        mapping[key] = value
    return document


def places_of(document: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        parse_request(document, "request.yaml")
    return [str(one.where).partition(" (")[0].partition("[")[0] for one in caught.value.problems or (caught.value,)]


def are_apart(one: Fault, other: Fault) -> bool:
    """Whether neither fault is of a key that holds the key of the other."""
    length = min(len(one[0]), len(other[0]))
    return one[0][:length] != other[0][:length]


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_two_faults_of_a_request_are_told_at_once_and_nothing_else(path: Path) -> None:
    document = read_yaml(path.read_bytes(), path.name).value
    faults, choose = faults_of(document), Random(path.stem)
    assert len(faults) > 50
    for fault in faults:
        pair = fault, choose.choice([one for one in faults if are_apart(one, fault)])
        expected = sorted(".".join((*where[:-1], key)) for where, key, _ in pair)
        assert sorted(places_of(with_faults(document, *pair))) == expected, pair


def test_rules_that_read_an_unknown_value_say_nothing() -> None:
    document = read_yaml(FULL, "request.yaml").value | {"equivalence": {"throughput": 0.1, "latency_p99": 0.1}}
    assert places_of(document) == ["equivalence.throughput"]
    assert places_of(document | {"metrics": ["peak_qps", "trouhgput"]}) == ["metrics", "metrics"]
    document["scenario"] = document["scenario"] | {"name": "sever"}
    assert places_of(document | {"metrics": ["peak_qps"], "equivalence": {}}) == ["scenario.name"]


def test_a_margin_that_only_a_lock_of_before_may_have() -> None:
    document = read_request(FULL, "request.yaml").document | {"equivalence": {"latency_p50": 10}}
    assert places_of(document) == ["equivalence.latency_p50"]
    assert parse_locked_request(document, "the lock's request").equivalence == {"latency_p50": 10}


def test_the_faults_of_a_request_have_a_next_step_each() -> None:
    text = FULL.replace("kind:", "kid:").replace("single_stream", "singel_stream").replace("1s", "1 parsec")
    with pytest.raises(InvalidInputError) as caught:
        read_request(text.replace("10m", "10 min").replace('"^1.0"', '"^1.0.x.y"'), "request.yaml")
    steps = {str(one.where).partition(" ")[0]: one.next_step for one in caught.value.problems}
    versions = {"model.version", "image.version"}
    assert set(steps) == {"kid", "scenario.name", "scenario.min_duration", "limits.time", *versions}
    assert (steps["kid"], steps["scenario.name"]) == ("did you mean 'kind'?", "did you mean 'single_stream'?")


PRICE = "{amount: 0.10, currency: USD, per: hour, date: 2026-11-20, source: a price list}"


def with_price(price: str | None, metrics: str) -> Request:
    lines = [line for line in FULL.splitlines() if not line.startswith(("scenario", "metrics", "equivalence"))]
    lines += ["scenario: {name: offline, min_samples: 1, min_duration: 1s, warmup: 1}", f"metrics: {metrics}"]
    return read_request("\n".join([*lines, *([] if price is None else [f"price: {price}"])]), "request.yaml")


def test_a_price_has_its_date_and_its_source() -> None:
    request = with_price(PRICE.replace("2026-11-20", "'2026-11-20'"), "[cost_per_million]")
    assert parse_request(request.document, "the lock's request") == request
    assert request.document["price"]["source"] == "a price list"


@pytest.mark.parametrize(
    ("price", "metrics", "message"),
    [
        (None, "[cost_per_million]", "cost_per_million needs the price of the machine"),
        (PRICE.replace("2026-11-20", "'2026-11-20'"), "[throughput]", "no requested metric uses the price"),
        (PRICE.replace("2026-11-20", "'2026-13-20'"), "[cost_per_million]", "'2026-13-20' is not a date"),
        (PRICE.replace("2026-11-20", "'2026-11-20'").replace("USD", "dollar"), "[cost_per_million]", "currency"),
        (PRICE.replace("2026-11-20", "'2026-11-20'").replace("0.10", "0"), "[cost_per_million]", "amount"),
        (PRICE.replace("2026-11-20", "'2026-11-20'").replace("0.10", "1e308"), "[cost_per_million]", "amount"),
        (PRICE.replace("2026-11-20", "'2026-11-20'").replace("0.10", "1e-300"), "[cost_per_million]", "amount"),
    ],
)
def test_a_price_that_is_missing_or_wrong_is_refused(price: str | None, metrics: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        with_price(price, metrics)
