"""Model cards: texts for readers, displayed as plain text whatever they contain."""

from dataclasses import dataclass

from benchlock.artifacts.blob_store import BlobStore, read
from benchlock.artifacts.digest import from_hex
from benchlock.registry.manifests import Manifest, files_of
from benchlock.registry.text.problems import printable

LARGEST = 1 << 20
"""Bytes of the largest card that is published."""

SHOWN = 1 << 14
"""Characters of a card that are shown."""


@dataclass(frozen=True, slots=True)
class Card:
    """``text`` has no character that a terminal would obey; ``cut`` is the number of characters left out at its end."""

    path: str
    text: str
    cut: int


def card_path(manifest: Manifest) -> str | None:
    """The path of the first file of the role ``card``; None where there is none."""
    return next((file.path for file in files_of(manifest) if file.role == "card"), None)


def read_card(manifest: Manifest, store: BlobStore) -> Card | None:
    """The card of a published manifest, verified; None where there is none.

    Raises:
        IntegrityError: its bytes are not what the manifest says.
    """
    file = next((file for file in files_of(manifest) if file.role == "card"), None)
    if file is None or file.path.endswith("/"):
        return None
    text = read(store, from_hex(str(file.sha256)), name=file.path).decode("utf-8", "replace")
    lines = (printable(line.replace("\t", "    ")) for line in text[:SHOWN].splitlines())
    return Card(file.path, "\n".join(lines), max(len(text) - SHOWN, 0))
