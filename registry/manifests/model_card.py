"""Model cards: texts for readers, displayed as plain text whatever they contain."""

from dataclasses import dataclass

from benchlock.artifacts.blob_store import BlobStore, read
from benchlock.artifacts.digest import from_hex
from benchlock.registry.manifests import Manifest, files_of
from benchlock.registry.text.collected_problems import printable

LARGEST = 1 << 20
"""Maximum size of a published card, in bytes."""

SHOWN = 1 << 14
"""Number of characters of a card that are displayed."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card as it is displayed.

    ``text`` has no control characters that a terminal would act on. ``cut`` is the number of characters omitted at the
    end.
    """

    path: str
    text: str
    cut: int


def card_path(manifest: Manifest) -> str | None:
    """Return the path of the first file with the role ``card``; None if there is none."""
    return next((file.path for file in files_of(manifest) if file.role == "card"), None)


def read_card(manifest: Manifest, store: BlobStore) -> Card | None:
    """Return the verified card of a published manifest; None if it has none.

    Raises:
        IntegrityError: Its bytes do not match the digest in the manifest.
    """
    file = next((file for file in files_of(manifest) if file.role == "card"), None)
    if file is None or file.path.endswith("/"):
        return None
    text = read(store, from_hex(str(file.sha256)), name=file.path).decode("utf-8", "replace")
    lines = (printable(line.replace("\t", "    ")) for line in text[:SHOWN].splitlines())
    return Card(file.path, "\n".join(lines), max(len(text) - SHOWN, 0))
