"""Tables as Markdown, as docs/explanation/comparing.md has them."""

from collections.abc import Iterable, Sequence


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def percent(share: float) -> str:
    """Return a share as a percentage with one digit; ``-`` for one of nothing."""
    return "-" if share != share else f"{share:.1%}"  # noqa: PLR0124 - not a number
