"""A clock that stands until a test sets it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass
class Standing:
    """Says the same time again and again."""

    at: datetime = datetime(2026, 11, 21, 12, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at

    def go_on(self, **by: float) -> None:
        """Set it forward."""
        self.at += timedelta(**by)
