"""What the OpenAPI document says of limits: characters, which are checked while a request is read, and bytes."""

from msgspec import Meta


def text(limit: int, example: str | None = None, pattern: str | None = None) -> Meta:
    """Return the limit of a text in bytes of UTF-8. A text has at least as many bytes as characters."""
    return Meta(
        max_length=limit,
        pattern=pattern,
        description=f"At most {limit} bytes of UTF-8.",
        examples=None if example is None else [example],
    )


def document(limit: int, least: str = "") -> Meta:
    """Return the limit of an object in bytes as JSON; ``least`` is said before it."""
    return Meta(description=f"{least}At most {limit} bytes as JSON.")
