"""Plain tar entries whose bytes are a function of their name and size: no times, owners or modes of a host."""

import tarfile
from typing import Final

BLOCK: Final = tarfile.BLOCKSIZE
END: Final = bytes(2 * BLOCK)
"""What ends an archive."""

_OCTAL_SIZES = 8**11
"""From here on a size does not fit into the octal digits of a header; GNU's form holds it."""


def header(path: str, size: int) -> bytes:
    """The block before a file of ``size`` bytes; ``path`` has at most 100."""
    entry = tarfile.TarInfo(path)
    entry.size = size
    return entry.tobuf(tarfile.USTAR_FORMAT if size < _OCTAL_SIZES else tarfile.GNU_FORMAT)


def padding(size: int) -> bytes:
    """What follows a file of ``size`` bytes, up to the next block."""
    return bytes(-size % BLOCK)
