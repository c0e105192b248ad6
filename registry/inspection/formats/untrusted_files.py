"""Reading of foreign files: budgets of bytes, members, fields and depth, and recognition of formats.

Time and memory are limited by the process that runs the readers: see ``inspection_process``.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final, TextIO, cast

_CHUNK: Final = 1 << 20


class OverBudgetError(Exception):
    """A file needs more than its budget; the text is a predicate: ``has a line of more than 16 MiB``."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one file.

    Attributes:
        document: Bytes of a text or JSON document that is held in memory: labels, locks, configurations.
        annotations: Bytes of COCO annotations after decompression.
        line: Bytes of a line of JSON or CSV.
        unpacked: Bytes of all members of a compressed file or archive together, after decompression.
        header: Bytes of a JSON or Thrift header: safetensors, parquet.
        array_header: Bytes of the header of a NumPy array; the limit of NumPy itself.
        read: Bytes of any other single read: the directory of an archive, a text in a pickle.
        members: Members of an archive.
        names: Bytes of one name in a pickle.
        fields: Fields of protocol buffers.
        ports: Inputs, and outputs, of a graph.
        columns: Elements of a parquet schema.
        axes: Axes of a tensor in a header.
        depth: Nesting of archives.
    """

    document: int = 16 << 20
    annotations: int = 512 << 20
    line: int = 16 << 20
    unpacked: int = 4 << 30
    header: int = 16 << 20
    array_header: int = 10_000
    read: int = 64 << 20
    members: int = 20_000
    names: int = 1000
    fields: int = 10_000_000
    ports: int = 1024
    columns: int = 100_000
    axes: int = 64
    depth: int = 4


BUDGET: Final = Budget()


def read_whole(stream: BinaryIO, largest: int) -> bytes:
    """Read the rest of a stream of at most ``largest`` bytes.

    Raises:
        OverBudgetError: There are more.
    """
    return bytes(read_buffer(stream, largest))


def read_buffer(stream: BinaryIO, largest: int) -> bytearray:
    """Read the rest of a stream like ``read_whole``, without a second copy of its bytes.

    Raises:
        OverBudgetError: There are more than ``largest`` bytes.
    """
    content = bytearray()
    while chunk := stream.read(min(_CHUNK, largest + 1 - len(content))):
        content += chunk
        if len(content) > largest:
            raise OverBudgetError(f"has more than {in_units(largest)}")
    return content


def read_lines(stream: BinaryIO, longest: int) -> Iterator[bytes]:
    """Yield the lines of a stream. Raises ``OverBudgetError`` at one longer than ``longest`` bytes."""
    while line := stream.readline(longest + 1):
        if len(line) > longest:
            raise OverBudgetError(f"has a line of more than {in_units(longest)}")
        yield line


def read_text_lines(text: TextIO, longest: int) -> Iterator[str]:
    """Yield the lines of a text. Raises ``OverBudgetError`` at one longer than ``longest`` characters."""
    while line := text.readline(longest + 1):
        if len(line) > longest:
            raise OverBudgetError(f"has a line of more than {in_units(longest)}")
        yield line


def check_count(count: int, most: int, of: str) -> None:
    """Raise ``OverBudgetError`` if ``count`` exceeds ``most``; ``of`` is the plural of the counted things."""
    if count > most:
        raise OverBudgetError(f"has more than {most} {of}")


def in_units(size: int) -> str:
    """Write a number of bytes for an error: ``16 MiB``."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and not size % unit:
            return f"{size // unit} {name}"
    return f"{size} bytes"


class Meter(io.RawIOBase):
    """A stream that limits each read to ``largest`` bytes, and all reads together to ``most`` bytes.

    Libraries read as many bytes as a header tells them to; a stream that refuses limits them.
    """

    def __init__(self, stream: BinaryIO, *, largest: int | None = None, most: int | None = None) -> None:
        """Limit the reads of ``stream``; None is no limit."""
        super().__init__()
        self._stream = stream
        self._largest = largest
        self._most = most
        self._read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Read bytes; ``OverBudgetError`` if there are too many."""
        return self._count_bytes(self._stream.read(self._bound_size(size)))

    def readline(self, size: int | None = -1, /) -> bytes:
        """Read a line, limited like any read."""
        return self._count_bytes(self._stream.readline(self._bound_size(size)))

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override] # a buffer of bytes
        """Read into a buffer."""
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Move to a position in the stream."""
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._stream.tell()

    def readable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return whether the stream behind it is seekable."""
        return self._stream.seekable()

    def _bound_size(self, size: int | None) -> int:
        """Return the size of a read, at most one byte above the limit; -1 for everything."""
        everything = size is None or size < 0
        if self._largest is None:
            return -1 if everything or size is None else size
        return self._largest + 1 if everything or size is None else min(size, self._largest + 1)

    def _count_bytes(self, content: bytes) -> bytes:
        """Add bytes to the total; ``OverBudgetError`` if they exceed a limit."""
        if self._largest is not None and len(content) > self._largest:
            raise OverBudgetError(f"has a part of more than {in_units(self._largest)}")
        self._read += len(content)
        if self._most is not None and self._read > self._most:
            raise OverBudgetError(f"unpacks to more than {in_units(self._most)}")
        return content


def meter_stream(stream: BinaryIO, *, most: int | None = None) -> BinaryIO:
    """Limit each read of a stream, and all reads together if ``most`` is set."""
    return cast("BinaryIO", Meter(stream, largest=BUDGET.read, most=most))


_BEGINNINGS: Final = (
    (4, b"TFL3", "a TFLite graph"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras 2)"),
    (0, b"PK\x03\x04", "a zip archive (TorchScript, torch.export or Keras)"),
    (0, b"\x1f\x8b", "a gzip file"),
    (0, b"\x7fELF", "a native program or library"),
    (0, b"%PDF", "a PDF"),
    (0, b"version https://git-lfs", "a pointer of Git LFS, not the file itself"),
    (8, b'{"', "a safetensors file"),
    (0, b"<", "an HTML or XML page"),
    (0, b"{", "a JSON document"),
)
_LENGTH: Final = 32


def recognize(stream: BinaryIO, form: str) -> str | None:
    """Return what a file is in words; None if its beginning does not tell, or is that of a ``form``."""
    stream.seek(0)
    start = stream.read(_LENGTH)
    seems = next((name for offset, sign, name in _BEGINNINGS if start[offset:].startswith(sign)), None)
    return None if seems is not None and form in seems else seems


def describe_mismatch(stream: BinaryIO, form: str, error: ValueError) -> str:
    """Describe that a file is not a ``form``: the recognised format, or else the error."""
    seems = recognize(stream, form)
    return f"is not a valid {form}: {error if seems is None else f'it is {seems}'}"
