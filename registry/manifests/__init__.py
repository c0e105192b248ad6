"""Manifests of models, datasets, frameworks and images: types, reading, checks and digests."""

from benchlock.registry.manifests.manifest_content import content, manifest_digest, parse_published, plain, with_files
from benchlock.registry.manifests.manifest_types import (
    Dataset,
    File,
    Framework,
    Image,
    Input,
    Manifest,
    Model,
    Output,
    Platform,
    Split,
    files_of,
    holds_path,
)
from benchlock.registry.manifests.steps import Step

__all__ = [
    "Dataset",
    "File",
    "Framework",
    "Image",
    "Input",
    "Manifest",
    "Model",
    "Output",
    "Platform",
    "Split",
    "Step",
    "content",
    "files_of",
    "holds_path",
    "manifest_digest",
    "parse_published",
    "plain",
    "with_files",
]
