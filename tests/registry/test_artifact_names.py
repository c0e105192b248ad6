"""Names, kinds and references."""

from types import ModuleType

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry import artifact_names
from benchlock.registry.artifact_names import (
    LONGEST,
    Name,
    Reference,
    parse_kind,
    parse_name,
    parse_reference,
    parse_target,
)
from benchlock.registry.inspection import model_signature
from benchlock.registry.lock import lock_feasibility
from benchlock.registry.manifests import metric_definitions
from benchlock.registry.scaffold.mlmodelscope import mlmodelscope_import
from benchlock.registry.versions.semantic_version import parse_version


@pytest.mark.parametrize(
    "text", ["resnet8", "a", "0", "resnet8-cifar10.v2_x", "acme/resnet8", "a.b/c-d", "x" * LONGEST]
)
def test_a_name_is_lower_case_words_joined_singly(text: str) -> None:
    assert parse_name(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ResNet8",
        "-a",
        "a-",
        "a--b",
        "a__b",
        "a b",
        "a/b/c",
        "/a",
        "a/",
        "../a",
        "ä",
        "a\n",
        "٣",
        "x" * (LONGEST + 1),
    ],
)
def test_anything_else_is_no_name(text: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid name"):
        parse_name(text)


def test_a_kind_is_one_of_six() -> None:
    assert [parse_kind(text) for text in ("model", "framework", "dataset", "image", "operator", "recipe")]
    with pytest.raises(InvalidInputError, match="unknown kind 'models'") as caught:
        parse_kind("models")
    assert (
        caught.value.next_step
        == "did you mean 'model'? the kinds are model, framework, dataset, image, operator, recipe"
    )
    with pytest.raises(InvalidInputError, match="unknown kind 'x'") as caught:
        parse_kind("x")
    assert caught.value.next_step == "the kinds are model, framework, dataset, image, operator, recipe"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model/resnet8", ("model", "resnet8", None)),
        ("model/resnet8@^1.0", ("model", "resnet8", "^1.0")),
        ("image/acme/torch@ >=1.0 <2 ", ("image", "acme/torch", ">=1.0 <2")),
    ],
)
def test_a_target_is_kind_name_and_perhaps_a_constraint(text: str, expected: tuple[str, str, str | None]) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize("text", ["resnet8", "model/", "model/resnet8@", "modle/resnet8", "/resnet8", "model/a/b/c"])
def test_a_malformed_target_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_target(text)


def test_a_reference_reads_as_it_is_written() -> None:
    assert str(parse_reference("model/acme/resnet8@1.2.0-rc.1+b5")) == "model/acme/resnet8@1.2.0-rc.1+b5"
    with pytest.raises(InvalidInputError, match="missing version in"):
        parse_reference("model/resnet8")
    with pytest.raises(InvalidInputError, match="invalid version"):
        parse_reference("model/resnet8@^1.0")


def test_references_that_differ_in_build_metadata_are_one() -> None:
    """Two versions that differ only in build metadata are one version."""
    plain, built = parse_reference("model/a@1.0.0"), parse_reference("model/a@1.0.0+cpu")
    assert plain == built
    assert len({plain, built}) == 1


def test_references_sort_by_kind_name_and_version() -> None:
    texts = ["dataset/b@1.0.0", "model/a@1.9.0", "model/a@1.10.0-rc.1", "model/a@1.10.0", "model/b@0.1.0"]
    assert [str(one) for one in sorted(map(parse_reference, reversed(texts)))] == texts
    assert Reference("model", Name("a"), parse_version("1.0.0")) != "model/a@1.0.0"


@pytest.mark.parametrize("module", [metric_definitions, lock_feasibility, model_signature, mlmodelscope_import])
def test_an_unknown_word_is_compared_by_its_first_characters_alone(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = list[str]()
    monkeypatch.setattr(artifact_names, "get_close_matches", lambda word, *_, **__: compared.append(word))
    assert not hasattr(module, "get_close_matches")
    module.find_close("x" * 1000, ["y"])
    assert compared == ["x" * 60]
