"""What a file is by its first bytes, for messages about files of another format than they should have."""

from typing import BinaryIO, Final

_BEGINNINGS: Final = (
    (4, b"TFL3", "a TFLite graph"),
    (0, b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras wrote"),
    (0, b"PK\x03\x04", "a zip archive, as TorchScript, torch.export and Keras write"),
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
    """Say that a file is no ``form``, and what it is, else why it is none."""
    seems = recognize(stream, form)
    return f"is no {form}: {error if seems is None else f'it is {seems}'}"
