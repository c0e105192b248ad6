"""What an artifact says of itself: the four kinds of manifest, how they are read, checked and identified."""

from benchlock.registry.manifests.identity import content, manifest_digest, parse_published, plain, with_files
from benchlock.registry.manifests.model import File, Input, Model, Output
from benchlock.registry.manifests.others import Dataset, Framework, Image, Manifest, Platform, Split, files_of
from benchlock.registry.manifests.reading import read_authored
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
    "manifest_digest",
    "parse_published",
    "plain",
    "read_authored",
    "with_files",
]
