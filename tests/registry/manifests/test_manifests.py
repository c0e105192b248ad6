"""Manifests: golden cases good and bad, what identifies one, and that no fault ends in anything but a clear error."""

import copy
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import force_setattr, replace

from benchlock.artifacts.digest import Descriptor, digest_bytes, from_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.registry.manifests import (
    Dataset,
    Image,
    Manifest,
    Model,
    content,
    files_of,
    manifest_digest,
    parse_published,
    plain,
    with_files,
)
from benchlock.registry.text.yaml import read_yaml
from tests.support.registry.authored import read_authored

CASES = Path(__file__).resolve().parents[2] / "cases" / "manifests"
GOOD = sorted((CASES / "good").glob("*.yaml"))
BAD = sorted((CASES / "bad").glob("*.yaml"))


def authored(name: str) -> Manifest:
    return read_authored((CASES / "good" / f"{name}.yaml").read_bytes(), "manifest.yaml")


def published(manifest: Manifest) -> Manifest:
    """With the digest that the author states, else that of the path, for each file."""
    return with_files(
        manifest,
        {
            file.path: Descriptor(
                digest_bytes(file.path.encode()) if file.sha256 is UNSET else from_hex(file.sha256),
                4 if file.size is UNSET else file.size,
            )
            for file in files_of(manifest)
        },
    )


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_a_good_manifest_has_the_content_of_its_case(path: Path) -> None:
    """The content is the RFC 8785 JSON of the parsed manifest, each source replaced by sha256 and size."""
    manifest = published(read_authored(path.read_bytes(), path.name))
    expected = json.loads(path.with_suffix(".json").read_text())
    assert content(manifest) == encode_canonical(expected)
    assert parse_published(content(manifest)) == manifest


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_manifest_is_refused_with_the_words_of_its_case(path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_authored(path.read_bytes(), "manifest.yaml")
    assert f"{caught.value}\n" == path.with_suffix(".txt").read_text()


def test_every_case_has_its_expectation() -> None:
    assert len(GOOD) > 5
    assert len(BAD) > 100
    assert {path.stem for path in (CASES / "good").glob("*.json")} == {path.stem for path in GOOD}
    assert {path.stem for path in (CASES / "bad").glob("*.txt")} == {path.stem for path in BAD}


def test_the_digest_is_of_the_canonical_text() -> None:
    text = (
        b'{"distributions":["torch"],"kind":"framework","license":"BSD-3-Clause","name":"pytorch",'
        b'"predictor":"pytorch","schema":1,"version":"2.13.0"}'
    )
    assert content(authored("framework")) == text
    assert manifest_digest(authored("framework")) == f"sha256:{hashlib.sha256(text).hexdigest()}"


def test_order_comments_and_sources_are_no_content() -> None:
    original = (CASES / "good" / "dataset.yaml").read_text()
    lines = original.replace("./labels.txt", "file:elsewhere.txt").splitlines()
    other = read_authored("# other\n" + "\n".join([*lines[3:6], *lines[:3], *lines[6:]]), "other.yaml")
    assert manifest_digest(published(other)) == manifest_digest(published(authored("dataset")))


def test_an_absent_key_and_its_explicit_value_are_different_content() -> None:
    """Absent keys stay absent, and what was written stays."""
    model = authored("savedmodel-tree")
    assert isinstance(model, Model)
    assert plain(model)["unsafe"] is False
    assert "family" not in plain(model)
    without = replace(model, unsafe=UNSET)
    assert manifest_digest(published(without)) != manifest_digest(published(model))


def test_numbers_of_equal_value_are_equal_content() -> None:
    text = (CASES / "good" / "resnet8-onnx.yaml").read_text()
    other = text.replace("mean: [0, 0, 0]", "mean: [0.0, 0e0, -0.0]").replace("0.87", "8.7e-1")
    assert manifest_digest(published(read_authored(other, "m"))) == manifest_digest(published(authored("resnet8-onnx")))


def test_a_manifest_whose_files_are_not_published_has_no_content() -> None:
    with pytest.raises(InvalidInputError, match=r"model\.onnx is not published yet"):
        content(authored("resnet8-onnx"))


def test_a_file_other_than_stated_is_refused() -> None:
    dataset = authored("dataset-idx")
    with pytest.raises(InvalidInputError, match=r"new\.gz has the sha256") as caught:
        with_files(dataset, {"new.gz": Descriptor(digest_bytes(b"other"), 4)})
    assert caught.value.where == "files[2].sha256"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"{", "the manifest is not valid JSON"),
        (b'{"schema": 1}', "the manifest is not canonical JSON"),
        (b'{"kind":"framework","kind":"framework"}', "the manifest is not canonical JSON"),
        (b'{"kind":"framework","schema":1}', "the key 'name' is missing"),
        (b"[]", "expected a mapping, found a list"),
    ],
)
def test_what_is_no_published_manifest_is_refused(text: bytes, what: str) -> None:
    with pytest.raises(InvalidInputError, match=what) as caught:
        parse_published(text)
    assert digest_bytes(text) in str(caught.value.where)


def test_a_published_manifest_has_digests_and_no_sources() -> None:
    fields = plain(published(authored("dataset")))
    fields["files"][0]["source"] = "./index.csv"
    with pytest.raises(InvalidInputError, match="a published manifest has no sources") as caught:
        parse_published(encode_canonical(fields))
    assert str(caught.value.where).startswith("files[0].source ")


def test_a_published_image_holds_its_layers() -> None:
    image = published(authored("image"))
    assert isinstance(image, Image)
    assert image.files is not UNSET
    without = replace(image, files=image.files[:-1])
    with pytest.raises(InvalidInputError, match="no file with the role layer has the digest") as caught:
        parse_published(content(without))
    assert str(caught.value.where).startswith("platforms[0].layers[0] ")


def test_manifests_do_not_change() -> None:
    dataset = authored("dataset")
    assert isinstance(dataset, Dataset)
    with pytest.raises(AttributeError):
        dataset.name = "other"  # type: ignore[misc]
    force_setattr(dataset, "name", "other")  # what a deliberate trespass needs


def test_steps_tell_their_name_and_arguments() -> None:
    model = authored("mobilenet-quantized")
    assert isinstance(model, Model)
    steps: Any = getattr(model.inputs[0], "steps", ())
    assert [step.name for step in steps] == [
        "decode", "resize", "center_crop", "pad", "scale", "quantize", "transpose",
    ]  # fmt: skip
    assert plain(steps[2].arguments) == {"size": [220, 220]}
    assert model.kind == "model"
    assert model.inputs[0].type == "image"


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:  # noqa: ANN401 - any parsed value
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [path, *(below for key in keys for below in _paths(value[key], (*path, key)))]


DOCUMENTS = [read_yaml(path.read_bytes(), path.name).value for path in GOOD]
SPOTS = [(number, path) for number, document in enumerate(DOCUMENTS) for path in _paths(document)[1:]]
REPLACEMENTS: list[Any] = [None, True, 0, -1, 3.5, "", "no", "../x", "x" * 300, [], [None], [[]], {}, {"name": 1}, "a/"]


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(SPOTS), st.sampled_from([*REPLACEMENTS, "delete", "rename"]))
def test_whatever_is_changed_gives_a_manifest_or_an_error_with_a_place(
    spot: tuple[int, tuple[Any, ...]],
    replacement: Any,  # noqa: ANN401 - any YAML value
) -> None:
    number, path = spot
    document = copy.deepcopy(DOCUMENTS[number])
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    if replacement == "delete":
        del holder[path[-1]]
    elif replacement == "rename" and isinstance(holder, dict):
        holder[f"{path[-1]}x"] = holder.pop(path[-1])
    else:
        holder[path[-1]] = replacement
    text = json.dumps(document)
    refused = refusal(text)
    if refused is None:
        manifest = published(read_authored(text, "manifest.yaml"))
        try:
            read_again = parse_published(content(manifest))
        except InvalidInputError as error:  # a file of an image that is published with other bytes than it names
            assert "is no file of the image" in error.what  # noqa: PT017 - raised or not, both are right
            return
        assert read_again == manifest
    else:
        assert re.fullmatch(r"([^ ]+ \()?manifest\.yaml, line 1\)?", str(refused.where)), refused
        assert "$" not in refused.what


def refusal(text: str) -> InvalidInputError | None:
    try:
        read_authored(text, "manifest.yaml")
    except InvalidInputError as error:
        return error
    return None
