"""A manifest's content, whichever way the manifest came to be."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.registry.manifests import parse_published, plain
from benchlock.registry.manifests.manifest_content import SLICE, content, may_have_large_number, parse_content

DIGEST = "0" * 64
DATASET = {
    "schema": 1,
    "kind": "dataset",
    "name": "acme/words",
    "version": "1.0.0",
    "license": "MIT",
    "format": "jsonl",
    "labels": "labels.txt",
    "splits": {"test": {"file": "test.jsonl", "fields": {"text": "said", "label": "means"}, "samples": 3}},
    "files": [
        {"path": "labels.txt", "sha256": DIGEST, "size": 8},
        {"path": "test.jsonl", "sha256": DIGEST, "size": 90},
    ],
}


def as_it_is(document: dict[str, Any]) -> dict[str, Any]:
    return document


def backwards(document: dict[str, Any]) -> dict[str, Any]:
    return dict(reversed(document.items()))


def as_fractions(document: dict[str, Any]) -> dict[str, Any]:
    """Whole numbers as other programs write them."""
    splits = {"test": document["splits"]["test"] | {"samples": 3.0}}
    return document | {
        "schema": 1.0,
        "splits": splits,
        "files": [one | {"size": one["size"] * 1.0} for one in document["files"]],
    }


@pytest.mark.parametrize("written", [as_it_is, backwards, as_fractions])
def test_the_content_is_that_of_the_manifest_however_it_was_sent(
    written: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    manifest = parse_content(written(DATASET))
    remembered = content(manifest)
    again = msgspec.structs.replace(manifest)  # another one, of which nothing is remembered
    assert remembered == content(again) == encode_canonical(plain(manifest)) == encode_canonical(DATASET)
    assert content(parse_published(remembered)) == remembered


def test_tags_are_part_of_the_content_only_where_they_are_given() -> None:
    assert b"tags" not in content(parse_content(DATASET))
    tagged = DATASET | {"tags": ["words", "small"]}
    assert content(parse_content(tagged)) == encode_canonical(tagged)


def test_a_manifest_whose_file_was_not_stored_has_no_content() -> None:
    files = [*DATASET["files"][:1], {"path": "test.jsonl", "source": "./test.jsonl"}]  # type: ignore[index]
    with pytest.raises(InvalidInputError, match="no sources"):
        parse_content(DATASET | {"files": files})


@pytest.mark.parametrize("number", [0, 0.1, -0.0, 1.0, True, 2**53 - 1, 1e15, 1e21, -1e300, 5e-324])
def test_what_has_a_content_can_be_read_again(number: float) -> None:
    manifest = parse_content(DATASET | {"attributes": {"number": number}})
    assert parse_published(content(manifest)) == manifest
    assert content(msgspec.structs.replace(manifest)) == content(manifest)


@pytest.mark.parametrize("number", [1e16, -1e20, 2.0**53])
def test_a_number_that_could_not_be_read_again_is_refused(number: float) -> None:
    document = DATASET | {"attributes": {"number": number}}
    with pytest.raises(InvalidInputError, match=r"2\*\*53 - 1.*safe integer") as caught:
        parse_content(document)
    assert caught.value.where == "dataset/acme/words@1.0.0"
    manifest = msgspec.structs.replace(parse_content(DATASET), attributes={"number": number})
    with pytest.raises(InvalidInputError, match="safe integer"):
        content(manifest)


@pytest.mark.parametrize("before", range(SLICE - 20, SLICE + 4))
def test_a_long_number_is_found_wherever_it_stands(before: int) -> None:
    assert may_have_large_number(b"x" * before + b"1234567890123456")
    assert not may_have_large_number(b"x" * before + b"123456789012345")
