"""Tensors on disk: safetensors files, which appear whole or not at all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors.numpy import save_file


def save_tensors(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write ``tensors`` by their names; readable by others, as every result is."""
    draft = path.with_name(path.name + ".draft")
    save_file(dict(tensors), draft)
    draft.chmod(0o644)
    draft.replace(path)
