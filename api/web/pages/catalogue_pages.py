"""The front page, and the catalogue of artifacts with its filters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, get_args

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas.pagination_cursors import decode_cursor, encode_cursor
from benchlock.api.web.id_search import find_ids, find_only_path
from benchlock.api.web.links import with_query
from benchlock.api.web.page import Page
from benchlock.api.web.run_lists import RUN_COLUMNS, list_run_rows
from benchlock.artifacts.errors import UnknownNameError
from benchlock.evaluator.analysis.tables import Column, Table
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.registry.artifact_names import KINDS, Kind, Name
from benchlock.registry.catalogue.catalogue_protocol import ANY_CONTENT, Entry
from benchlock.registry.catalogue.version_lists import VersionFilter
from benchlock.registry.manifests.manifest_types import Task

NAMES: Final = 50
"""The number of names on a page of the catalogue."""
_FRONT: Final = 10
_BEHIND_VERSIONS: Final = "~"
"""A precedence behind that of every version, so that the API continues with the next name, too."""
_COLUMNS: Final = (
    Column("artifact", None, "Kind, name, and the newest version that is neither yanked nor a pre-release."),
    Column("description", None, "The description in the manifest."),
    Column("published", None, "When that version was published, UTC."),
    Column("remarks", None, "Whether it is yanked or a pre-release."),
)


@dataclass(frozen=True, slots=True)
class CatalogueQuery:
    """The state of the catalogue in its address; texts are as the reader wrote them."""

    search: str = ""
    kind: str = ""
    task: str = ""
    framework: str = ""
    tag: str = ""
    license: str = ""
    platform: str = ""
    cursor: str = ""

    def as_parameters(self) -> dict[str, str]:
        """Return the parameters without the cursor."""
        names = ("search", "kind", "task", "framework", "tag", "license", "platform")
        return {name: getattr(self, name) for name in names}


def make_home(registry: LocalRegistry) -> Page:
    """Make the front page: what this is, the newest runs, and the first artifacts."""
    runs = registry.records.list_entries(limit=_FRONT)
    names = registry.catalogue.names(VersionFilter(), _FRONT)
    return Page(
        "home",
        "Which bytes produced this number?",
        tables={
            "runs": Table("runs", "Newest runs", RUN_COLUMNS, list_run_rows(registry, runs)),
            "artifacts": _tabulate(registry, names),
        },
        json_path="/v1/artifacts",
    )


def make_catalogue(
    registry: LocalRegistry, query: CatalogueQuery, listing: VersionFilter, queue: SqlQueue | None = None
) -> Page:
    """Make a page of the catalogue, one row a name.

    The first page of a search has the runs, jobs and locks whose ids begin with the text as well. ``jump`` in its
    context is the path of the only one, if no artifact matches.

    Args:
        registry: The registry.
        query: The filters as in the address.
        listing: The same filters, parsed.
        queue: The queue, whose jobs are searched; without one, only artifacts are.
    """
    if query.cursor:
        after = decode_cursor(query.cursor, 3)
        listing = replace(listing, after=(after[0], after[1], after[2]))
    if listing.content == ANY_CONTENT:
        names = registry.catalogue.names(listing, NAMES + 1)
        last = names[NAMES - 1] if len(names) > NAMES else None
        cursor = None if last is None else encode_cursor((*last, _BEHIND_VERSIONS))
        names = names[:NAMES]
    else:
        found = registry.catalogue.search(listing, NAMES)
        names = tuple(dict.fromkeys((version.kind, version.name) for version in found.versions))
        cursor = None if found.after is None else encode_cursor(found.after)
    given = query.as_parameters()
    tables = {"artifacts": _tabulate(registry, names)}
    only_searches = [name for name, text in given.items() if text] == ["search"] and not query.cursor
    ids = find_ids(registry, queue, query.search) if only_searches and queue is not None else None
    if ids is not None and ids.rows:
        tables["ids"] = ids
    return Page(
        "catalogue",
        "Artifacts",
        {
            "chosen": query,
            "kinds": KINDS,
            "tasks": get_args(Task),
            "is_filtered": any(given.values()),
            "next": None if cursor is None else with_query("/artifacts", **given, cursor=cursor),
            "jump": None if ids is None or names else find_only_path(ids),
        },
        tables,
        json_path=with_query("/v1/artifacts", **given, cursor=query.cursor),
    )


def _tabulate(registry: LocalRegistry, names: Iterable[tuple[Kind, Name]]) -> Table:
    rows = []
    for kind, name in names:
        try:
            entry = registry.catalogue.newest(kind, name, None)
        except UnknownNameError:  # pragma: no cover - names are never removed
            continue
        rows.append((
            str(entry.reference),
            find_description(registry.catalogue.manifest_document(entry.reference)),
            f"{entry.published_at:%Y-%m-%d}",
            "; ".join(list_version_remarks(entry)),
        ))  # fmt: skip
    return Table("artifacts", "Artifacts", _COLUMNS, tuple(rows))


def list_version_remarks(entry: Entry) -> list[str]:
    """Return whether a version is yanked, with the reason, and whether it is a pre-release."""
    yanked = [] if entry.yanked is None else [f"yanked: {entry.yanked}"]
    return yanked + ["pre-release"] * bool(entry.reference.version.prerelease)


def find_description(document: Mapping[str, object]) -> str:
    """Return the description in a manifest; empty without one."""
    return str(document.get("description", ""))
