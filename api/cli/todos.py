"""How many lines of a written manifest wait for its author."""


def todo_lines(count: int) -> str:
    """``1 TODO line``, ``8 TODO lines``."""
    return "1 TODO line" if count == 1 else f"{count} TODO lines"
