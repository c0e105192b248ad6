"""Routes for artifacts and their versions: list, read, publish and yank."""

from dataclasses import replace
from typing import Annotated

import msgspec
from litestar import Controller, get, post
from litestar.di import Provide
from litestar.params import Body, Parameter
from msgspec import UNSET

from benchlock.api.http.openapi import describe_body, describe_empty_body, describe_responses, encode_example
from benchlock.api.http.request_authorization import PUBLISH, READ
from benchlock.api.http.request_limits import WHILE_FULL, reserve_share
from benchlock.api.http.request_parsing import (
    LONG_BODY,
    MAX_PUBLICATION,
    Cursor,
    Injected,
    JsonRequest,
    Limit,
    bound_page_size,
    fit_page,
)
from benchlock.api.http.responses import JSON, BytesResponse, respond_with_etag
from benchlock.api.http.service_state import Document, Service
from benchlock.api.schemas.artifact_schemas import (
    Publication,
    PublishedVersion,
    VersionDocument,
    VersionPage,
    YankRequest,
    YankResult,
    encode_published_version,
    encode_version_page_entry,
    version_document,
)
from benchlock.api.schemas.pagination_cursors import decode_cursor, encode_cursor
from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.size_limits import SUMMARY, TARGET
from benchlock.registry.artifact_names import (
    LONGEST_TAG,
    Kind,
    Reference,
    parse_name,
    parse_reference,
    parse_tag,
    parse_target,
)
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import ANY_CONTENT, ContentFilter, ListedVersion, Provenance
from benchlock.registry.catalogue.version_lists import SearchPage, VersionFilter
from benchlock.registry.manifests.manifest_types import Task
from benchlock.registry.publishing.remote_publication import parse_received_manifest, publish_received
from benchlock.registry.versions.semantic_version import parse_version
from benchlock.registry.versions.version_ranges import Constraint

LATEST = "latest"
"""Instead of a version: the newest that is neither yanked nor a pre-release, else the newest of all."""

_ENTRY = {
    "kind": "model",
    "name": "acme/resnet8",
    "version": "1.0.0",
    "digest": "sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
    "published_at": "2026-11-20T12:00:00Z",
    "yanked": None,
}
_PAGE = {"artifacts": [_ENTRY], "next": "WyJtb2RlbCIsImFjbWUvcmVzbmV0OCIsIjEuMC4wIl0"}

KindIn = Annotated[Kind, Parameter(description="The kind of the artifact.")]
NameIn = Annotated[
    str,
    Parameter(
        description="NAME or NAMESPACE/NAME, and after `@` a version, a constraint, or `latest`.",
        examples=[encode_example("acme/resnet8@1.0.0")],
        max_length=TARGET,
    ),
]
OptionalKind = Annotated[Kind | None, Parameter(description="Only of this kind.", required=False)]
OptionalName = Annotated[
    str | None,
    Parameter(
        description="Only versions of this name.",
        required=False,
        examples=[encode_example("acme/resnet8")],
        max_length=128,
    ),
]
Namespace = Annotated[
    str | None,
    Parameter(description="Only of this namespace.", required=False, examples=[encode_example("acme")], max_length=128),
]


TaskIs = Annotated[Task | None, Parameter(description="Only models for this task.", required=False)]
FrameworkIs = Annotated[
    str | None,
    Parameter(
        description="Only models that need this framework, images that provide it, and the framework itself.",
        required=False,
        examples=[encode_example("onnxruntime")],
        max_length=128,
    ),
]
Search = Annotated[
    str | None,
    Parameter(
        description="Only versions with this text in their name, description or tags, in upper or lower case.",
        required=False,
        examples=[encode_example("cifar")],
        min_length=1,
        max_length=SUMMARY,
    ),
]

Tag = Annotated[
    str | None,
    Parameter(
        description="Only versions with this tag.",
        required=False,
        examples=[encode_example("vision")],
        max_length=LONGEST_TAG,
    ),
]

License = Annotated[
    str | None,
    Parameter(
        description="Only versions with this license as it is written, in upper or lower case.",
        required=False,
        examples=[encode_example("Apache-2.0")],
        max_length=SUMMARY,
    ),
]
PlatformIs = Annotated[
    str | None,
    Parameter(
        description="Only images with an environment for this OS, OS/ARCH or OS/ARCH/DEVICE.",
        required=False,
        examples=[encode_example("linux/amd64/cpu")],
        max_length=128,
    ),
]


def parse_content_filter(
    task: TaskIs = None,
    framework: FrameworkIs = None,
    search: Search = None,
    tag: Tag = None,
    license: License = None,  # noqa: A002 - the name of the parameter of the request
    platform: PlatformIs = None,
) -> ContentFilter:
    """Return the filter of manifests in the parameters of a request.

    Args:
        task: The task of a model.
        framework: The name of a framework.
        search: A part of the name, description or a tag.
        tag: A tag.
        license: A license.
        platform: An operating system; after slashes, an architecture and a device.

    Raises:
        InvalidInputError: A name or tag is malformed.
    """
    return ContentFilter(
        task,
        None if framework is None else parse_name(framework),
        search,
        None if tag is None else parse_tag(tag),
        license,
        platform,
    )


def parse_version_filter(
    content: Injected[ContentFilter],
    kind: OptionalKind = None,
    name: OptionalName = None,
    namespace: Namespace = None,
) -> VersionFilter:
    """Return the filter in the parameters of a request.

    Args:
        content: The filter of manifests.
        kind: The kind.
        name: The name.
        namespace: The namespace of the name.

    Raises:
        InvalidInputError: A name is malformed.
    """
    return VersionFilter(
        kind,
        None if name is None else parse_name(name),
        None if namespace is None else _parse_namespace(namespace),
        content=content,
    )


class ArtifactController(Controller):
    """Routes that read ``/v1/artifacts``."""

    tags = ("artifacts",)

    @get(
        "/artifacts",
        opt=READ,
        dependencies={
            "content": Provide(parse_content_filter, sync_to_thread=False),
            "listing": Provide(parse_version_filter, sync_to_thread=False),
        },
        summary="List versions",
        responses=describe_responses(
            "invalid-input", success={200: describe_body(VersionPage, "A page of versions.", _PAGE)}
        ),
    )
    async def list_versions(
        self,
        service: Injected[Service],
        listing: Injected[VersionFilter],
        cursor: Cursor = None,
        limit: Limit = None,
    ) -> BytesResponse:
        """List versions by kind, name and version, including yanked ones; all of a name with `kind` and `name`.

        With `task`, `framework`, `search`, `tag`, `license` or `platform`, a page with `next` may be short or empty.
        """
        if cursor is not None:
            kind, name, precedence = decode_cursor(cursor, 3)
            listing = replace(listing, after=(kind, name, precedence))
        if listing.content != ANY_CONTENT:
            page_size = bound_page_size(limit, service.settings)
            found = await service.lists.do(service.registry.catalogue.search, listing, page_size)
            return BytesResponse(msgspec.json.encode(_search_page(found)), JSON, {})
        return BytesResponse(await _list(service, listing, limit), JSON, {})

    @get(
        "/artifacts/{kind:str}/{name:path}",
        opt=READ,
        summary="Read a version",
        responses=describe_responses(
            "unknown-name",
            "invalid-input",
            success={
                200: describe_body(
                    VersionDocument, "The version.", _ENTRY | {"manifest": {"kind": "model"}, "sources": {}}
                ),
                304: describe_empty_body("Unchanged since the ETag in If-None-Match."),
            },
        ),
    )
    async def read_version(
        self, service: Injected[Service], kind: KindIn, name: NameIn, request: JsonRequest
    ) -> BytesResponse:
        """Read the version after `@` with its manifest, or the newest that satisfies the constraint after `@`."""
        target = f"{kind}{name}"
        document, number = service.reads.get(target)
        if document is None:
            document = await service.work.look_up(_read, service.registry.catalogue, target)
            service.reads.put(target, document, number)
        text, tag = document
        return respond_with_etag(text, tag, request.headers.get("if-none-match"))


def _page(versions: tuple[ListedVersion, ...], limit: int) -> VersionPage:
    """Build a page of at most ``limit`` items; ``versions`` has one more if there are more."""
    keys = {str(version.digest): version.key for version in versions}
    page, more = fit_page(
        [encode_version_page_entry(version) for version in versions],
        limit,
        lambda version: encode_cursor(keys[version.digest]),
    )
    return VersionPage(artifacts=page, next=more)


def _search_page(found: SearchPage) -> VersionPage:
    """Build the page of a search, or its beginning if it is too long."""
    page = _page(found.versions, len(found.versions))
    if page.next is UNSET and found.after is not None:
        return msgspec.structs.replace(page, next=encode_cursor(found.after))
    return page


async def _list(service: Service, listing: VersionFilter, limit: int | None) -> bytes:
    """Return a page of versions; ``limit`` is the client's."""
    page_size = bound_page_size(limit, service.settings)
    page, number = service.reads.get((listing, page_size))
    if page is None:
        is_usual = page_size <= service.settings.usual_page
        look = service.work.look_up if is_usual else service.work.do
        versions = await look(service.registry.catalogue.page, listing, page_size + 1)
        page = msgspec.json.encode(_page(versions, page_size)), ""
        if is_usual:
            service.reads.put((listing, page_size), page, number)
    return page[0]


def _read(catalogue: Catalogue, target: str) -> Document:
    """Read the version that ``target`` names; its ETag is its digest, or another digest if it is yanked."""
    kind, name, version = parse_target(target)
    if version is None:
        raise InvalidInputError(
            f"missing version in {target}",
            where=target,
            next_step=f"write {target}@VERSION, {target}@{LATEST}, or GET /v1/artifacts?kind={kind}&name={name}",
        )
    try:
        reference = Reference(kind, name, parse_version(version))
    except InvalidInputError:  # a constraint
        reference = catalogue.newest(kind, name, None if version == LATEST else Constraint.parse(version)).reference
    entry, manifest, sources = catalogue.read(reference)
    is_yanked = entry.yanked is not None
    tag = digest_bytes(f"{entry.digest} {entry.yanked}".encode()) if is_yanked else entry.digest
    return version_document(entry, manifest, sources), tag


def _parse_namespace(text: str) -> str:
    """Parse a namespace, the part of a name before the ``/``."""
    return parse_name(f"{text}/x").partition("/")[0]


_MANIFEST = {
    "schema": 1,
    "kind": "framework",
    "name": "acme/onnxruntime",
    "version": "1.0.0",
    "license": "MIT",
    "predictor": "onnxruntime",
    "distributions": ["onnxruntime"],
}
_PUBLICATION = {"manifest": _MANIFEST, "authored": "schema: 1\n…", "sources": {}, "dry_run": False}
_PUBLISHED = {
    "kind": "framework",
    "name": "acme/onnxruntime",
    "version": "1.0.0",
    "digest": "sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
    "changed": True,
    "warnings": [],
}
_YANK = {"target": "model/acme/resnet8@1.0.0", "reason": "trained on the test split", "undo": False}
_YANKED = {"target": "model/acme/resnet8@1.0.0", "yanked": True, "changed": True}

PublicationIn = Annotated[Publication, Body(examples=[encode_example(_PUBLICATION)])]
YankIn = Annotated[YankRequest, Body(examples=[encode_example(_YANK)])]


class PublicationController(Controller):
    """Routes that publish and yank versions."""

    tags = ("artifacts",)
    request_max_body_size = MAX_PUBLICATION

    @post(
        "/artifacts",
        opt=PUBLISH | WHILE_FULL,
        status_code=200,
        summary="Publish a version",
        responses=describe_responses(
            "missing-blobs",
            "version-taken",
            "integrity",
            body=True,
            success={
                200: describe_body(
                    PublishedVersion,
                    "The version already exists, or the request is a dry run.",
                    _PUBLISHED | {"changed": False},
                ),
                201: describe_body(PublishedVersion, "The version is published.", _PUBLISHED),
            },
        ),
    )
    async def publish_version(
        self, service: Injected[Service], request: JsonRequest, data: PublicationIn
    ) -> BytesResponse:
        """Check a manifest and its files and publish the version; 409 with `blobs` names the blobs to upload first.

        Files are read by a process with limits: 1.5 GiB of memory, 60 seconds of CPU time, 300 seconds in total.
        """
        long = len(await request.body()) > LONG_BODY
        work = service.inspect if long or data.manifest.get("files") else service.work
        result = await work.do(_publish, service, data)
        status = 201 if result.changed and not data.dry_run else 200
        return BytesResponse(msgspec.json.encode(result), JSON, {}, status)

    @post(
        "/yanks",
        opt=PUBLISH | WHILE_FULL,
        status_code=200,
        summary="Yank or unyank a version",
        responses=describe_responses(
            "unknown-name", body=True, success={200: describe_body(YankResult, "The state of the version.", _YANKED)}
        ),
    )
    async def yank_version(self, service: Injected[Service], data: YankIn) -> YankResult:
        """Hide a version from new resolutions; locks with it can still be run."""
        return await service.work.do(yank, service.registry.catalogue, data)


def _publish(service: Service, data: Publication) -> PublishedVersion:
    if not data.dry_run:
        service.reserve.require(0, reserve_share())
    warnings: list[str] = []
    manifest = parse_received_manifest(data.manifest, None if data.digest is UNSET else Digest(data.digest))
    provenance, registry = Provenance(data.authored, data.sources), service.registry
    result = publish_received(
        manifest, provenance, registry.store, registry.catalogue, warn=warnings.append, dry_run=data.dry_run
    )
    return encode_published_version(result, tuple(warnings))


def yank(catalogue: Catalogue, data: YankRequest) -> YankResult:
    """Yank or unyank a version."""
    reference = parse_reference(data.target)
    changed = catalogue.unyank(reference) if data.undo else catalogue.yank(reference, data.reason)
    return YankResult(target=str(reference), yanked=not data.undo, changed=changed)
