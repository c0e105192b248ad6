"""What the harness says that each sample adds to a metric, as it is read: of the shape and type that is promised."""

from typing import Any

import numpy as np
import numpy.typing as npt

Tensor = npt.NDArray[Any]


def series(values: Tensor, shape: tuple[int | None, ...], kind: str) -> Tensor:
    """``values``, which are finite, not negative, of 64 bits, of the ``kind`` of NumPy's types and of ``shape``.

    Raises:
        ValueError: they are not.
    """
    sizes = zip(values.shape, shape, strict=True)
    if values.dtype.kind != kind or any(want not in (None, size) for size, want in sizes) or values.dtype.itemsize < 8:  # noqa: PLR2004 - 64 bits
        raise ValueError(f"{values.dtype} {list(values.shape)}")
    if (values < 0).any() or not np.isfinite(values).all():
        raise ValueError("a measure that is negative or no number")
    return values
