"""Tensors on disk: safetensors files, which appear whole or not at all."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file


def save_tensors(path: Path, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> None:
    """Write ``tensors`` by their names, and texts as metadata; readable by others, as every result is."""
    draft = path.with_name(path.name + ".draft")
    save_file(dict(tensors), draft, None if metadata is None else dict(metadata))
    draft.chmod(0o644)
    draft.replace(path)


def joined(name: str, samples: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The tensors of all samples as one, first axis the sample.

    Where they differ along their first axis alone they are joined along it, and ``NAME.rows`` has the length of each.
    Where they differ otherwise their elements are joined in row-major order, and ``NAME.shapes`` has the shapes.

    Raises:
        ValueError: they differ in their number of axes.
    """
    shapes = [values.shape for values in samples]
    if len(set(shapes)) == 1:
        return {name: np.stack(samples)}
    if len({len(shape) for shape in shapes}) > 1:
        raise ValueError("they differ in their number of axes: " + ", ".join(map(str, sorted(set(shapes))[:3])))
    if len({shape[1:] for shape in shapes}) == 1:
        return {name: np.concatenate(samples), f"{name}.rows": np.asarray([shape[0] for shape in shapes], np.int64)}
    flat = np.concatenate([values.reshape(-1) for values in samples])
    return {name: flat, f"{name}.shapes": np.asarray(shapes, np.int64)}
