"""Validation rules of manifests that types cannot express and that need nothing but the manifest."""

import re
from typing import Any

from msgspec import UNSET

from benchlock.artifacts.digest import parse_digest, to_hex
from benchlock.registry.artifact_names import parse_name, parse_tag
from benchlock.registry.manifests.file_checks import check_file_reference, check_files
from benchlock.registry.manifests.manifest_types import (
    AudioInput,
    Dataset,
    Image,
    Manifest,
    Model,
    Operator,
    Platform,
    Recipe,
    Split,
    files_of,
)
from benchlock.registry.manifests.model_call_checks import check_batches
from benchlock.registry.manifests.model_checks import check_geometry, check_model
from benchlock.registry.manifests.operator_checks import check_operator
from benchlock.registry.manifests.recipe_checks import check_recipe, describe_trained
from benchlock.registry.manifests.step_shapes import check_rates
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.text.decoder import describe_key
from benchlock.registry.text.parsed_text import Document, Place
from benchlock.registry.versions.semantic_version import parse_version

_PYTHON = re.compile(r"3\.[0-9]+")
_SPLIT_KEYS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "image-index": (("index",), ()),
    "wav-index": (("index",), ()),
    "idx": (("images",), ("labels",)),
    "npz": (("file", "fields"), ()),
    "jsonl": (("file", "fields"), ()),
    "parquet": (("file", "fields"), ()),
    "coco": (("annotations", "images"), ()),
}
"""The required and the optional keys of a split beside ``samples``, by format of the dataset."""

_LABEL = "label"


def check(manifest: Manifest, document: Document, *, published: bool) -> None:
    """Check every rule of a manifest.

    Args:
        manifest: The manifest.
        document: Its text, for the places of problems.
        published: Whether the manifest has digests instead of sources.

    Raises:
        InvalidInputError: The first broken rule, with its path, and all others.
    """
    place, problems = Place(document), Problems()
    for key, parse in (("name", parse_name), ("version", parse_version)):
        with problems.noted():
            place.at(key).parsed(parse, getattr(manifest, key))
    with problems.noted():
        if manifest.tags is not UNSET:
            _check_tags(manifest.tags, place.at("tags"), problems)
    with problems.noted():
        check_files(files_of(manifest), manifest.kind, place.at("files"), problems, published=published)
    with problems.noted():
        if isinstance(manifest, Model):
            _check_model(manifest, place, problems, published=published)
        elif isinstance(manifest, Dataset):
            _check_dataset(manifest, place, problems)
        elif isinstance(manifest, Image):
            _check_image(manifest, place, problems, published=published)
        elif isinstance(manifest, Operator):
            check_operator(manifest, place, problems)
        elif isinstance(manifest, Recipe):
            check_recipe(manifest, place, problems)
            problems.refuse()
            _check_model(describe_trained(manifest), place, problems, published=published)
    problems.refuse()


def _check_tags(tags: tuple[str, ...], place: Place, problems: Problems) -> None:
    """Check that each tag is valid and occurs once."""
    for index, tag in enumerate(tags):
        with problems.noted():
            place.at(index).parsed(parse_tag, tag)
            if tag in tags[:index]:
                raise place.at(index).error(f"duplicate tag {tag!r}", "remove one of them")


def _check_model(model: Model, place: Place, problems: Problems, *, published: bool) -> None:
    """Check the rules of models."""
    check_model(model, place, problems)
    weights = {f"sha256:{file.sha256}" for file in model.files if file.role == "weights"}
    if published and model.trained is not UNSET and model.trained.weights not in weights:
        with problems.noted():
            step = "promote the run again"
            raise place.at("trained", "weights").error("no file of the role weights has this digest", step)
    if not published:  # manifests that were published before these rules must stay readable
        with problems.noted():
            check_geometry(model, place)
        with problems.noted():
            check_batches(model, place, problems)
        with problems.noted():
            _check_rates(model, place, problems)


def _check_rates(model: Model, place: Place, problems: Problems) -> None:
    """Check that each audio input is resampled where its rate is known."""
    for index, port in enumerate(model.inputs):
        with problems.noted():
            if isinstance(port, AudioInput):
                check_rates(port.steps, place.at("inputs", index, "steps"))


def _check_dataset(dataset: Dataset, place: Place, problems: Problems) -> None:
    """Check the labels and splits of a dataset."""
    with problems.noted():
        check_file_reference(dataset.files, dataset.labels, place.at("labels"))
    for name, split in dataset.splits.items():
        here = place.at("splits", name)
        with problems.noted():
            _check_split_keys(split, dataset.format, here, problems)
        for key in ("index", "images", "labels", "file", "annotations"):
            with problems.noted():
                check_file_reference(dataset.files, getattr(split, key), here.at(key))
        with problems.noted():
            if split.fields is not UNSET and not set(split.fields) - {_LABEL}:
                raise here.at("fields").error("label is the only field", "add the field that feeds the model")


def _check_split_keys(split: Split, form: str, place: Place, problems: Problems) -> None:
    """Check that a split has the keys of its format and no others."""
    required, optional = _SPLIT_KEYS[form]
    for key in required:
        if getattr(split, key) is UNSET:
            what = f"the key {key!r} is missing: a split of {form} has it"
            problems.add(place.at(key).error(what, f"write {describe_key(Split, key)}"))
    for key in split.__struct_fields__:
        if key not in (*required, *optional, "samples") and getattr(split, key) is not UNSET:
            known = ", ".join((*required, *optional, "samples"))
            problems.add(place.at(key).error(f"a split of {form} has no key {key!r}", f"known here: {known}"))


def _check_image(image: Image, place: Place, problems: Problems, *, published: bool) -> None:
    """Check the framework and the platforms of an image."""
    with problems.noted():
        place.at("provides", "framework").parsed(parse_name, image.provides.framework)
    with problems.noted():
        place.at("provides", "version").parsed(parse_version, image.provides.version)
    seen: dict[tuple[str, str, str], int] = {}
    for index, platform in enumerate(image.platforms):
        here = place.at("platforms", index)
        with problems.noted():
            selected = (platform.os, platform.arch, platform.device)
            first = seen.setdefault(selected, index)
            if first != index:
                what = f"{'/'.join(selected)} is also platforms[{first}]"
                raise here.error(what, "write one platform for each os, arch and device")
        with problems.noted():
            if not _PYTHON.fullmatch(platform.python):
                what = f"{platform.python!r} is not a minor version of Python"
                raise here.at("python").error(what, 'write it like "3.11"')
        with problems.noted():
            _check_environment(image, platform, here, published=published)


def _check_environment(image: Image, platform: Platform, place: Place, *, published: bool) -> None:
    """Check that a platform is either a finished image by digest, or wheels with an optional config and layers."""
    if platform.reference is not UNSET:
        name, separator, digest = platform.reference.partition("@")
        if not name or not separator:
            raise place.at("reference").error("a finished image is named by digest", "write NAME@sha256:DIGEST")
        place.at("reference").parsed(parse_digest, digest)
        for key in ("wheels", "config", "layers"):
            if getattr(platform, key) is not UNSET:
                raise place.at(key).error("a reference replaces wheels and layers", f"remove {key}")
        return
    if platform.wheels is UNSET:
        raise place.at("wheels").error(
            "the key 'wheels' is missing", "write the path of a PEP 751 lock among the files"
        )
    check_file_reference(files_of(image), platform.wheels, place.at("wheels"))
    if (platform.config is UNSET) != (platform.layers is UNSET):
        key = "config" if platform.config is UNSET else "layers"
        raise place.at(key).error(f"the key {key!r} is missing: config and layers come together", "write both or none")
    if platform.config is not UNSET and platform.layers is not UNSET:
        digests = (("config", platform.config, place.at("config")),)
        layers = (("layer", digest, place.at("layers", index)) for index, digest in enumerate(platform.layers))
        listed = {(file.role, file.sha256) for file in files_of(image)} if published else None
        for role, digest, here in (*digests, *layers):
            here.parsed(parse_digest, digest)
            _check_listed(listed, role, digest, here)


def _check_listed(listed: set[Any] | None, role: str, digest: str, place: Place) -> None:
    """Check that a published image has its configuration and layers among its files."""
    if listed is not None and (role, to_hex(parse_digest(digest))) not in listed:
        raise place.error(f"no file with the role {role} has the digest {digest}", "add it to files")
