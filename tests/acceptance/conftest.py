"""A registry with real images that a test may harm."""

import pytest

from tests.support.api.commands import Commands, copied


@pytest.fixture(scope="module")
def registry(small_images: Commands, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """A copy of the registry with the images of ONNX Runtime and LiteRT."""
    return copied(small_images, tmp_path_factory.mktemp("copy") / "registry", small_images.engine)
