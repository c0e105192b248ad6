"""IDX files of bytes, and the manifest of a dataset of two of them."""

import math
import struct
from typing import Final

MANIFEST: Final = """\
schema: 1
kind: dataset
name: digits
version: 1.0.0
license: MIT
format: idx
splits: {test: {images: images.idx, labels: labels.idx, samples: SAMPLES}}
files: [{path: images.idx, source: ./images.idx}, {path: labels.idx, source: ./labels.idx}]
"""


def idx_file(*sizes: int, content: bytes | None = None) -> bytes:
    """Return an IDX file of bytes, which are zero without ``content``."""
    header = struct.pack(f">HBB{len(sizes)}I", 0, 8, len(sizes), *sizes)
    return header + (bytes(math.prod(sizes)) if content is None else content)


def idx_manifest(samples: int) -> str:
    """Return the manifest of a dataset whose split ``test`` has this number of samples."""
    return MANIFEST.replace("SAMPLES", str(samples))
