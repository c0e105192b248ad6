"""Limits of texts and objects in the OpenAPI document. Characters are checked on reading, bytes after it."""

from msgspec import Meta


def limit_text(limit: int, example: str | None = None, pattern: str | None = None) -> Meta:
    """Limit a text to ``limit`` bytes of UTF-8, and so to as many characters.

    Args:
        limit: Bytes of UTF-8.
        example: An example for the OpenAPI document.
        pattern: A regular expression that the text has to match.
    """
    return Meta(
        max_length=limit,
        pattern=pattern,
        description=f"At most {limit} bytes of UTF-8.",
        examples=None if example is None else [example],
    )


def limit_document(limit: int) -> Meta:
    """Limit an object to ``limit`` bytes as JSON."""
    return Meta(description=f"At most {limit} bytes as JSON.")
