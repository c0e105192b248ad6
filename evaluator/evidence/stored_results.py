"""Results that can be computed again, in a folder of a bounded number of files."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, TypeVar

import msgspec

from benchlock.artifacts.digest import digest_bytes, to_hex
from benchlock.artifacts.json_codec import encode_canonical

T = TypeVar("T")
_DIGITS: Final = 3
"""The hex digits in the name of a file; with 3 there are at most 4096 files."""
_LARGEST: Final = 1 << 20


class StoredResults:
    """Results by a key that determines them. A new result replaces one whose key has the same first digits.

    Readers of a registry cause results to be stored, so their number must not follow from the number of requests.
    """

    def __init__(self, folder: Path) -> None:
        """Open the results in a folder, which is created with the first result."""
        self._folder = folder

    def read(self, key: Sequence[Any], kind: type[T]) -> T | None:
        """Return the result with this key; None if there is none, or none that can be read."""
        digest, path = self._find(key)
        try:
            with path.open("rb") as file:
                stored_key, value = msgspec.json.decode(file.read(_LARGEST), type=tuple[str, msgspec.Raw])
            return msgspec.json.decode(value, type=kind) if stored_key == digest else None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def write(self, key: Sequence[Any], value: object) -> None:
        """Store a result; without effect if it is too large, or the folder cannot be written."""
        digest, path = self._find(key)
        content = msgspec.json.encode([digest, value])
        if len(content) > _LARGEST:
            return
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=self._folder, delete=False) as file:
                file.write(content)
            Path(file.name).replace(path)

    def _find(self, key: Sequence[Any]) -> tuple[str, Path]:
        digest = to_hex(digest_bytes(encode_canonical(list(key))))
        return digest, self._folder / f"{digest[:_DIGITS]}.json"
