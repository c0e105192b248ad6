"""JSON in columns."""

from artifacts.canonical import canonical


def as_json(value: object) -> str:
    """The canonical text of a value."""
    return canonical(value).decode()
