"""The manifests of a dataset, a framework and an image."""

from typing import Annotated, Any, ClassVar, Literal

from msgspec import UNSET, Meta, UnsetType

from benchlock.registry.manifests.model import File, Model
from benchlock.registry.manifests.parts import (
    MOST_FILES,
    MOST_LAYERS,
    MOST_PLATFORMS,
    MOST_SPLITS,
    Count,
    DigestText,
    NameText,
    Part,
    PathText,
    Text,
    VersionText,
)
from benchlock.registry.names import Kind

DatasetFormat = Literal["image-index", "wav-index", "idx", "npz", "jsonl", "parquet", "coco"]
PredictorName = Literal["onnxruntime", "pytorch", "tensorflow", "litert"]


class Split(Part, frozen=True, kw_only=True):
    """Part of a dataset. Which keys it has depends on the dataset's format."""

    samples: Count
    index: (
        Annotated[PathText, Meta(description="image-index, wav-index: a CSV with columns path, label")] | UnsetType
    ) = UNSET
    images: Annotated[PathText, Meta(description="idx: the pictures' file; coco: their folder")] | UnsetType = UNSET
    labels: (
        Annotated[PathText, Meta(description="idx: the labels' file; absent, the split is unlabelled")] | UnsetType
    ) = UNSET
    file: Annotated[PathText, Meta(description="npz, jsonl, parquet")] | UnsetType = UNSET
    fields: (
        Annotated[
            dict[str, Text],
            Meta(max_length=MOST_SPLITS, description="npz, jsonl, parquet: field to key; `label` the label"),
        ]
        | UnsetType
    ) = UNSET
    annotations: Annotated[PathText, Meta(description="coco")] | UnsetType = UNSET


class Dataset(Part, frozen=True, kw_only=True, tag_field="kind", tag="dataset"):
    kind: ClassVar[Kind] = "dataset"

    schema: Literal[1]
    name: NameText
    version: VersionText
    license: Text
    description: str | UnsetType = UNSET
    attributes: dict[str, Any] | UnsetType = UNSET
    format: DatasetFormat
    splits: Annotated[dict[str, Split], Meta(min_length=1, max_length=MOST_SPLITS)]
    labels: Annotated[PathText, Meta(description="UTF-8, line i is index i")] | UnsetType = UNSET
    ignore_label: Annotated[int, Meta(description="of masks: pixels that are not compared")] | UnsetType = UNSET
    files: Annotated[tuple[File, ...], Meta(min_length=1, max_length=MOST_FILES)]


class Framework(Part, frozen=True, kw_only=True, tag_field="kind", tag="framework"):
    kind: ClassVar[Kind] = "framework"

    schema: Literal[1]
    name: NameText
    version: VersionText
    license: Text
    description: str | UnsetType = UNSET
    attributes: dict[str, Any] | UnsetType = UNSET
    predictor: PredictorName
    distributions: Annotated[
        tuple[Text, ...],
        Meta(min_length=1, max_length=MOST_PLATFORMS, description="Python distributions that are this framework"),
    ]


class Provision(Part, frozen=True, kw_only=True):
    """The one framework version that an image provides."""

    framework: NameText
    version: VersionText


class Platform(Part, frozen=True, kw_only=True):
    """An environment for one kind of host: wheels and the layers made of them, or a finished image by digest."""

    os: Text
    arch: Text
    device: Text
    python: Annotated[str, Meta(description="the minor version, quoted", extra_json_schema={"pattern": "^3\\.[0-9]+$"})]
    wheels: Annotated[PathText, Meta(description="a PEP 751 lock with paths and hashes")] | UnsetType = UNSET
    config: Annotated[DigestText, Meta(description="of the image's configuration: the image id")] | UnsetType = UNSET
    layers: (
        Annotated[
            tuple[DigestText, ...],
            Meta(min_length=1, max_length=MOST_LAYERS, description="uncompressed, the base first"),
        ]
        | UnsetType
    ) = UNSET
    reference: Annotated[Text, Meta(description="NAME@sha256:… of a finished image")] | UnsetType = UNSET


class Image(Part, frozen=True, kw_only=True, tag_field="kind", tag="image"):
    kind: ClassVar[Kind] = "image"

    schema: Literal[1]
    name: NameText
    version: VersionText
    license: Text
    description: str | UnsetType = UNSET
    attributes: dict[str, Any] | UnsetType = UNSET
    provides: Provision
    platforms: Annotated[tuple[Platform, ...], Meta(min_length=1, max_length=MOST_PLATFORMS)]
    files: Annotated[tuple[File, ...], Meta(max_length=MOST_FILES)] | UnsetType = UNSET


Manifest = Model | Dataset | Framework | Image


def files_of(manifest: Manifest) -> tuple[File, ...]:
    """The files of any manifest; a framework has none."""
    if isinstance(manifest, Framework) or manifest.files is UNSET:
        return ()
    return manifest.files
