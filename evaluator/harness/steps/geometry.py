"""Where the pixels of a picture came from, so that what a network finds in it can be told in the original's pixels."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Geometry:
    """A position in the picture as it is now = its position in the original times ``scale`` plus ``offset``.

    ``scale`` and ``offset`` are (x, y), positions in pixels from the outer corner of the first pixel; ``original`` is
    (height, width) in pixels, after the orientation that the file states was applied.
    """

    scale: tuple[float, float]
    offset: tuple[float, float]
    original: tuple[int, int]

    @classmethod
    def identity(cls, height: int, width: int) -> "Geometry":
        """Of a picture that nothing was done to."""
        return cls((1.0, 1.0), (0.0, 0.0), (height, width))
