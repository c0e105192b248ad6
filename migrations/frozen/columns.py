"""The types of columns: texts are compared byte by byte in every database, and whole numbers have 64 bits."""

from sqlalchemy import BigInteger, Integer, String, Text

_BYTEWISE = "C"

TEXT = Text().with_variant(Text(collation=_BYTEWISE), "postgresql")
WHOLE = Integer().with_variant(BigInteger(), "postgresql")


def letters(most: int) -> String:
    """Return the type of a text of at most ``most`` characters."""
    return String(most).with_variant(String(most, collation=_BYTEWISE), "postgresql")


DIGEST = letters(len("sha256:") + 64)
