"""Pages as JSON."""

from typing import Any

from msgspec import Struct

from benchlock.evaluator.analysis.tables import Table


class PageDocument(Struct, frozen=True, kw_only=True):
    """A page of the browser as JSON: what it states, and its tables by name with the numbers as they were computed."""

    title: str
    facts: dict[str, Any]
    tables: dict[str, Table]
