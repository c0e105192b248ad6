"""Artifacts and their versions: pages of them, and one with its manifest."""

from typing import Annotated, Any

import msgspec
from litestar import Request, Router, get
from litestar.params import Parameter

from benchlock.api.http.conditional import JSON, Encoded, tagged
from benchlock.api.http.documented import answers, content, example, nothing
from benchlock.api.http.guards import READ
from benchlock.api.http.kept import Kept, UntilCommitted
from benchlock.api.http.pages import Cursor, Limit, bounded, fit_page
from benchlock.api.http.service import Service
from benchlock.api.wire.artifacts import VersionDocument, VersionPage, listed_on_wire, version_document
from benchlock.api.wire.cursors import cursor_of, key_of
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.limits import TARGET
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.database import commits_of
from benchlock.registry.catalogue.pages import Listed, Listing
from benchlock.registry.constraints import Constraint
from benchlock.registry.names import Kind, Name, Reference, parse_name, parse_target
from benchlock.registry.versions import parse_version

_ENTRY_BYTES = 1024
"""What an entry takes, roughly."""

_Found = tuple[bytes, str]
"""The document of a version, and its tag: the digest of what is published, another one where that is yanked."""

_LONGEST_KEPT = 256
"""Characters of what is asked for, beyond which what is found is not kept: nobody asks so twice."""

LATEST = "latest"
"""In the place of a version: the newest that is neither yanked nor a pre-release, else the newest of all."""

_ENTRY = {
    "kind": "model",
    "name": "acme/resnet8",
    "version": "1.0.0",
    "digest": "sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
    "published_at": "2026-11-20T12:00:00Z",
    "yanked": None,
}
_PAGE = {"artifacts": [_ENTRY], "next": "WyJtb2RlbCIsImFjbWUvcmVzbmV0OCIsIjEuMC4wIl0"}

KindIn = Annotated[Kind, Parameter(description="What it is.")]
NameIn = Annotated[
    str,
    Parameter(
        description="NAME or NAMESPACE/NAME, and after `@` a version, a constraint, or `latest`.",
        examples=[example("acme/resnet8@1.0.0")],
        max_length=TARGET,
    ),
]
OptionalKind = Annotated[Kind | None, Parameter(description="Only of this kind.", required=False)]
OptionalName = Annotated[
    str | None,
    Parameter(
        description="Only versions of this name.",
        required=False,
        examples=[example("acme/resnet8")],
        max_length=128,
    ),
]
Namespace = Annotated[
    str | None,
    Parameter(description="Only of this namespace.", required=False, examples=[example("acme")], max_length=128),
]


def routes(service: Service) -> Router:
    """``/v1/artifacts``."""
    catalogue = service.registry.catalogue
    commits = commits_of(service.registry.database)
    usual: Kept[_Found] = Kept(service.settings.current_bytes)
    current: UntilCommitted[_Found] = UntilCommitted(commits, service.settings.current_bytes)
    pages: UntilCommitted[bytes] = UntilCommitted(commits, service.settings.current_bytes)

    @get(
        "/artifacts",
        opt=READ,
        summary="List versions",
        responses=answers("invalid-input", success={200: content(VersionPage, "A page of versions.", _PAGE)}),
    )
    async def list_versions(
        kind: OptionalKind = None,
        name: OptionalName = None,
        namespace: Namespace = None,
        cursor: Cursor = None,
        limit: Limit = None,
    ) -> Encoded:
        """Versions by kind, name and version, yanked ones too; all of a name with ``kind`` and ``name``."""
        most = bounded(limit, service.settings)
        after = None if cursor is None else key_of(cursor, 3)
        listing = Listing(
            kind,
            None if name is None else parse_name(name),
            None if namespace is None else _namespace(namespace),
            None if after is None else (after[0], after[1], after[2]),
        )
        text, number = pages.get((listing, most))
        if text is None:
            is_usual = most <= service.settings.usual_page
            look = service.work.look_up if is_usual else service.work.do
            found = await look(catalogue.page, listing, most + 1)
            text = msgspec.json.encode(_page(found, most))
            if is_usual:
                pages.put((listing, most), text, _ENTRY_BYTES + len(text), number)
        return Encoded(text, JSON, {})

    @get(
        "/artifacts/{kind:str}/{name:path}",
        opt=READ,
        summary="Read a version",
        responses=answers(
            "unknown-name",
            "invalid-input",
            success={
                200: content(VersionDocument, "The version.", _ENTRY | {"manifest": {"kind": "model"}, "sources": {}}),
                304: nothing("It is what If-None-Match names."),
            },
        ),
    )
    async def read_version(kind: KindIn, name: NameIn, request: Request[Any, Any, Any]) -> Encoded:
        """One version with its manifest: the one that ``@`` names, or the newest that it admits."""
        target = f"{kind}{name}"
        found, number = current.get(target)
        if found is None:
            found = await service.work.look_up(_read, catalogue, usual, target)
            if len(target) <= _LONGEST_KEPT:
                current.put(target, found, _ENTRY_BYTES + len(found[0]), number)
        text, tag = found
        return tagged(text, tag, request.headers.get("if-none-match"))

    return Router("", route_handlers=[list_versions, read_version], tags=["artifacts"])


def _page(found: tuple[Listed, ...], most: int) -> VersionPage:
    """A page of ``most``, of one more if there are."""
    keys = {str(one.digest): one.key for one in found}
    shown, more = fit_page([listed_on_wire(one) for one in found], most, lambda one: cursor_of(keys[one.digest]))
    return VersionPage(artifacts=shown, next=more)


def _read(catalogue: Catalogue, usual: Kept[_Found], target: str) -> _Found:
    """What the version is that ``target`` names. ``usual`` keeps what those are that are not yanked, for ever."""
    reference = _named(catalogue, target)
    found = usual.get(reference)
    if found is not None and catalogue.why_yanked(reference) is None:
        return found
    entry, manifest, sources = catalogue.read(reference)
    text = version_document(entry, manifest, sources)
    if entry.yanked is not None:
        return text, digest_bytes(f"{entry.digest} {entry.yanked}".encode())
    usual.put(reference, (text, entry.digest), _ENTRY_BYTES + len(text))
    return text, entry.digest


def _named(catalogue: Catalogue, target: str) -> Reference:
    kind, name, wanted = parse_target(target)
    if wanted is None:
        raise InvalidInputError(
            f"{target} names no version",
            where=target,
            next_step=f"write {target}@VERSION, {target}@{LATEST}, or GET /v1/artifacts?kind={kind}&name={name}",
        )
    exact = _exact(kind, name, wanted)
    if exact is not None:
        return exact
    return catalogue.newest(kind, name, None if wanted == LATEST else Constraint.parse(wanted)).reference


def _exact(kind: Kind, name: Name, wanted: str) -> Reference | None:
    try:
        return Reference(kind, name, parse_version(wanted))
    except InvalidInputError:
        return None


def _namespace(text: str) -> str:
    """A namespace is what stands before the ``/`` of a name."""
    return parse_name(f"{text}/x").partition("/")[0]
