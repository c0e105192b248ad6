"""Where the pixels of a picture came from, so that what a network finds in it can be told in the original's pixels."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNTOLD = "its steps do not tell where its pixels came from"


@dataclass(frozen=True, slots=True)
class Geometry:
    """A position in the picture as it is now = its position in the original times ``scale`` plus ``offset``.

    ``scale`` and ``offset`` are (x, y), positions in pixels from the outer corner of the first pixel; ``original`` and
    ``size``, of the picture as it is now, are (height, width) in pixels, the original's after the orientation that the
    file states was applied.
    """

    scale: tuple[float, float]
    offset: tuple[float, float]
    original: tuple[int, int]
    size: tuple[int, int]

    @classmethod
    def identity(cls, height: int, width: int) -> "Geometry":
        """Of a picture that nothing was done to."""
        return cls((1.0, 1.0), (0.0, 0.0), (height, width), (height, width))

    def resized(self, height: int, width: int) -> "Geometry":
        """After a resize to ``height`` x ``width``: borders stay borders, whatever pixels the method reads."""
        x, y = width / self.size[1], height / self.size[0]
        return replace(
            self,
            scale=(self.scale[0] * x, self.scale[1] * y),
            offset=(self.offset[0] * x, self.offset[1] * y),
            size=(height, width),
        )

    def cropped(self, top: int, left: int, height: int, width: int) -> "Geometry":
        """What is left of ``height`` x ``width`` after so many pixels were cut away above and at the left."""
        return replace(self, offset=(self.offset[0] - left, self.offset[1] - top), size=(height, width))

    def padded(self, top: int, bottom: int, left: int, right: int) -> "Geometry":
        """With margins of so many pixels."""
        height, width = self.size
        return self.cropped(-top, -left, height + top + bottom, width + left + right)

    def to_original(self, corners: NDArray[Any]) -> NDArray[np.float64]:
        """Positions [..., 2 k], x and y in turn, in pixels of the picture as it is now, in pixels of the original."""
        turns = corners.shape[-1] // 2
        found: NDArray[np.float64] = (corners - np.tile(self.offset, turns)) / np.tile(self.scale, turns)
        return found
