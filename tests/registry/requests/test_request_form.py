"""Forms of requests: every field goes into the request file exactly, and comes back from it."""

from dataclasses import fields, replace

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.requests.evaluation_request import parse_request, read_request
from benchlock.registry.requests.request_form import (
    SCENARIOS,
    SETTINGS,
    RequestFields,
    forget_usual,
    list_settings,
    read_document,
    write_document,
)
from benchlock.registry.text.yaml import entry_lines

FULL = RequestFields(
    model="acme/digits@^1.0",
    framework="onnxruntime@>=1.2 <2",
    dataset="digits@1.0.0",
    split="test",
    image="onnxruntime-cpu@*",
    os="linux",
    arch="amd64, arm64",
    device="cuda12, cuda13",
    host_cpus="8",
    host_memory="16GiB",
    accelerator="H200",
    accelerator_count="2",
    accelerator_memory="80GiB",
    accelerator_driver=">=550",
    scenario="single_stream",
    min_queries="662",
    min_duration="1s",
    warmup="0",
    metrics="top1, latency, cost_per_million",
    seed="11",
    time="10m",
    memory="2GiB",
    cpus="2",
    processes="64",
    trace="model",
    price_amount="0.000001",
    price_currency="EUR",
    price_date="2026-11-20",
    price_source='a "price list": #1',
    equivalence="top1=0.01, latency_p99=0.5",
    prereleases="model, image",
    as_of="2026-11-20T12:00:00Z",
    name="my-question",
)


def read_back(form: RequestFields) -> RequestFields:
    document = write_document(form, "", [])
    text = "\n".join(line for key, value in document.items() for line in entry_lines(key, value))
    request = read_request(text, "request.yaml")
    assert request.document == document
    return read_document(request.document, form.framework.partition("@")[0])


def test_every_field_comes_back_from_the_request_file() -> None:
    # Settings of other scenarios, and fields that are no part of a request.
    others = {"task", "isolation", "usual", *SETTINGS} - set(list_settings("single_stream"))
    assert {field.name for field in fields(RequestFields)} - FULL.as_parameters().keys() == others
    assert read_back(FULL) == FULL


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_settings_of_each_scenario_come_back(scenario: str) -> None:
    settings = {name: SETTINGS[name] for name in list_settings(scenario)}
    form = RequestFields(model="a@*", dataset="d@*", split="s", metrics="latency", scenario=scenario, **settings)
    document = write_document(form, "", [])
    again = read_document(document, "")
    assert again.as_parameters().items() >= {**settings, "scenario": scenario}.items()
    assert write_document(again, "", []) == document


def test_an_accelerator_with_a_name_alone_is_a_text() -> None:
    form = RequestFields(model="a", dataset="d", split="s", accelerator="H200", metrics="latency")
    assert write_document(form, "", [])["hardware"] == {"accelerator": "H200"}
    assert read_back(form).accelerator == "H200"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"price_amount": "2"}, "currency"),
        ({"price_amount": "cheap"}, "price.amount"),
        ({"equivalence": "top1"}, "equivalence"),
        ({"equivalence": "top1=1.5"}, "margin"),
        ({"host_memory": "much"}, "hardware.memory"),
        ({"accelerator_count": "0"}, "accelerator"),
        ({"host_cpus": "two"}, "hardware.cpus"),
    ],
)
def test_a_wrong_field_is_named(changed: dict[str, str], words: str) -> None:
    given = {"model": "a", "dataset": "d", "split": "s", "metrics": "top1, cost_per_million"}
    document = write_document(RequestFields(**given, **changed), "", [])
    with pytest.raises(InvalidInputError) as refusal:
        parse_request(document, "request")
    assert words in "\n".join(map(str, refusal.value.problems or (refusal.value,)))


def test_metrics_that_the_form_ticked_are_not_the_choice_of_its_user() -> None:
    fields = RequestFields(metrics="latency, top1", usual="top1, latency")
    assert forget_usual(fields) == RequestFields()
    assert forget_usual(replace(fields, metrics="top1")) == RequestFields(metrics="top1")
    assert forget_usual(RequestFields(metrics="top1")) == RequestFields(metrics="top1")
