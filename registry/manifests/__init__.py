"""Manifests of models, datasets, frameworks, images, operators and recipes: types, reading, checks and digests."""

from benchlock.registry.manifests.manifest_content import content, manifest_digest, parse_published, plain, with_files
from benchlock.registry.manifests.manifest_types import (
    Dataset,
    Evaluated,
    File,
    Framework,
    Image,
    Input,
    Manifest,
    Model,
    Operator,
    Output,
    Platform,
    Recipe,
    Split,
    files_of,
    holds_path,
)
from benchlock.registry.manifests.steps import Step

__all__ = [
    "Dataset",
    "Evaluated",
    "File",
    "Framework",
    "Image",
    "Input",
    "Manifest",
    "Model",
    "Operator",
    "Output",
    "Platform",
    "Recipe",
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
