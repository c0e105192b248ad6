"""JSON in columns."""

from benchlock.artifacts.canonical import canonical


def as_json(value: object) -> str:
    """The canonical text of a value."""
    return canonical(value).decode()
