"""A registry with real images that a test may harm."""

import os
import shutil
from dataclasses import replace

import pytest

from tests.support.commands import Commands


@pytest.fixture(scope="module")
def registry(small_images: Commands, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """A copy of the registry with the images of ONNX Runtime and LiteRT; its blobs are links to the same files."""
    home = tmp_path_factory.mktemp("copy") / "registry"
    left_out = shutil.ignore_patterns("blobs", "builds", "environments", "runs")
    shutil.copytree(small_images.registry, home, ignore=left_out)
    shutil.copytree(small_images.registry / "blobs" / "sha256", home / "blobs" / "sha256", copy_function=os.link)
    return replace(small_images, registry=home)
