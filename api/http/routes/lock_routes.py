"""Routes for locks: resolve, lock, read, check, explain and compare."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from litestar import Request as HttpRequest
from litestar import Router, get, post
from litestar.handlers import BaseRouteHandler
from litestar.params import Body, Parameter
from msgspec import UNSET

from benchlock.api.http.admission_control import ASK
from benchlock.api.http.openapi import describe_body, describe_empty_body, describe_responses, encode_example
from benchlock.api.http.request_authorization import READ, RUN
from benchlock.api.http.request_parsing import MAX_LOCK_VALUES, MAX_RECORD
from benchlock.api.http.responses import CACHE_AND_REVALIDATE, CACHE_FOREVER, JSON, BytesResponse, respond_with_etag
from benchlock.api.http.service import Document, Service
from benchlock.api.local.image_lookup import make_public_lookup
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas import lock_schemas as wire
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness_archive import HARNESS_VERSION, build_harness
from benchlock.evaluator.runner.lock_verification import check_agreement, read_manifests
from benchlock.registry.lock.lock_assembly import check_lock
from benchlock.registry.lock.lock_creation import (
    Harness,
    explain_locked_version,
    keep_lock,
    known_manifests,
    list_yanked,
    resolve_drafted,
    resolve_request,
)
from benchlock.registry.lock.lock_diff import diff
from benchlock.registry.lock.lockfile import Lock, dump, list_blob_references, load
from benchlock.registry.names import parse_target
from benchlock.registry.publishing.remote_publication import require_blobs
from benchlock.registry.requests.evaluation_request import Request, parse_request
from benchlock.registry.resolution.version_search import Preferences


def make_lock(registry: LocalRegistry, request: Request, preferences: Preferences) -> tuple[Lock, tuple[str, ...]]:
    """Resolve ``request`` and store its lock; return the lock and warnings about yanked versions in it.

    Image registries on private networks are not contacted.

    Raises:
        ConflictError: No versions satisfy the request.
        BenchlockError: As ``lock_creation.keep_lock``.
    """
    resolution = resolve_request(request, registry.catalogue, preferences)
    harness = Harness(HARNESS_VERSION, build_harness())
    look_up = make_public_lookup(registry.store)
    lock = keep_lock(request, resolution, harness, registry.store, registry.catalogue, look_up)
    return lock, list_yanked(resolution)


TOML = "application/toml"
_TOML_TAG = "-toml"
_ID = "sha256:"
_VALUES = {"most_values": MAX_LOCK_VALUES}

_LOCK = 'id = "sha256:1c2ab5b6…"\nschema = "1.0"\n…'
REQUEST: Any = {
    "schema": 1,
    "kind": "evaluation",
    "name": "my-question",
    "model": {"name": "acme/resnet8", "version": "^1.0"},
    "dataset": {"name": "cifar10", "version": ">=1.0 <2", "split": "test"},
    "hardware": {"os": "linux", "arch": "amd64", "device": "cpu"},
    "limits": {"time": "10m", "memory": "2GiB", "cpus": 1, "processes": 256},
    "scenario": {"name": "single_stream", "min_queries": 662, "min_duration": "1s", "warmup": 8},
    "metrics": ["top1", "latency"],
    "seed": 7,
}
_FRESHNESS_EXAMPLE = {"fresh": False, "reasons": ["seed was 7, is 8"], "warnings": []}
_PREFERENCE_EXAMPLE = {"kind": "model", "name": "acme/resnet8", "version": "1.0.0"}
_CHOSEN_EXAMPLE = {**_PREFERENCE_EXAMPLE, "digest": _ID + "0" * 64, "yanked": None}
_RESOLUTION_EXAMPLE: Any = {
    **{kind: {**_CHOSEN_EXAMPLE, "kind": kind} for kind in ("model", "framework", "image", "dataset")},
    "platforms": [{"os": "linux", "arch": "amd64", "device": "cpu", "python": "3.11", "layered": True}],
}
_LOCK_EXAMPLE = {"lock": _ID + "0" * 64, "text": _LOCK, "warnings": []}
_CHANGE = {"subject": "model/acme/resnet8", "before": "1.0.0", "after": "1.1.0", "details": ["weights changed"]}
_WHY = {"prose": "framework/onnxruntime 1.20.0 …", "why": {"kind": "framework", "name": "onnxruntime"}}

QuestionIn = Annotated[
    wire.Question, Body(examples=[encode_example({"request": REQUEST, "preferences": [_PREFERENCE_EXAMPLE]})])
]
GivenIn = Annotated[wire.Given, Body(examples=[encode_example({"request": REQUEST}), encode_example({"text": _LOCK})])]
CheckedIn = Annotated[wire.Checked, Body(examples=[encode_example({"lock": _ID + "1c2ab5b6", "request": REQUEST})])]
WhyIn = Annotated[
    wire.WhyAsked, Body(examples=[encode_example({"lock": _ID + "1c2ab5b6", "target": "framework/onnxruntime"})])
]
TwoIn = Annotated[wire.TwoLocks, Body(examples=[encode_example({"before": _ID + "1c2ab5b6", "after": _LOCK})])]
IdIn = Annotated[
    str,
    Parameter(
        description="The lock's id, or at least the first 8 of its hex digits.",
        max_length=len(_ID) + 64,
        examples=[encode_example("sha256:1c2ab5b6")],
    ),
]


def routes(service: Service) -> Router:
    """Build the routes ``/v1/resolve`` and ``/v1/locks``."""
    registry = service.registry

    @post(
        "/resolve",
        opt=READ | ASK,
        status_code=200,
        summary="Resolve a request",
        responses=describe_responses(
            "conflict",
            "unknown-name",
            body=True,
            success={200: describe_body(wire.Resolved, "What answers it.", _RESOLUTION_EXAMPLE)},
        ),
    )
    async def resolve_request(data: QuestionIn) -> wire.Resolved:
        """Choose the versions that satisfy the request; 409 with `conflict` explains why none do. Stores nothing."""
        return await service.ask.do(_resolve, registry, data)

    @post(
        "/locks",
        opt=RUN | ASK | _VALUES,
        status_code=201,
        summary="Make a lock, or keep one",
        responses=describe_responses(
            "conflict",
            "missing-blobs",
            "unknown-name",
            "integrity",
            body=True,
            success={201: describe_body(wire.KeptLock, "The lock, kept.", _LOCK_EXAMPLE)},
        ),
    )
    async def create_lock(data: GivenIn) -> wire.KeptLock:
        """Resolve and lock a `request`, or store the lock in `text` as it is. Repeating the request has no effect."""
        return await service.ask.do(_make_or_keep_lock, service, data)

    return Router(
        "",
        route_handlers=[resolve_request, create_lock, _read_route(service), *_query_routes(service)],
        tags=["locks"],
        request_max_body_size=MAX_RECORD,
    )


def _read_route(service: Service) -> BaseRouteHandler:
    registry = service.registry

    @get(
        "/locks/{lock_id:str}",
        opt=READ,
        summary="Read a lock",
        responses=describe_responses(
            "unknown-name",
            "invalid-input",
            success={
                200: describe_body(wire.KeptLock, "The lock; as TOML where Accept asks for it.", _LOCK_EXAMPLE),
                304: describe_empty_body("It is what If-None-Match names."),
            },
        ),
    )
    async def read_lock(lock_id: IdIn, request: HttpRequest[Any, Any, Any]) -> BytesResponse:
        """Read a lock by its id, or by the unique beginning of its id."""
        is_toml = TOML in request.headers.get("accept", "")
        media_type = TOML if is_toml else JSON
        document, number = service.reads.get((lock_id, media_type))
        if document is None:
            document = await service.work.do(_read_lock, registry, lock_id, as_toml=is_toml)
            service.reads.put((lock_id, media_type), document, number)
        text, tag = document
        is_whole = tag.removesuffix(_TOML_TAG) == lock_id  # a later lock may have the same beginning
        caching = CACHE_FOREVER if is_whole else CACHE_AND_REVALIDATE
        return respond_with_etag(text, tag, request.headers.get("if-none-match"), caching, media_type, vary="Accept")

    return read_lock


def _query_routes(service: Service) -> list[Any]:
    """Build the routes that answer questions about locks, which need not be stored."""
    registry = service.registry

    @post(
        "/locks/check",
        opt=READ | ASK | _VALUES,
        status_code=200,
        summary="Does a lock still answer its request?",
        responses=describe_responses(
            "unknown-name",
            "integrity",
            body=True,
            success={200: describe_body(wire.FreshnessFound, "Whether it does.", _FRESHNESS_EXAMPLE)},
        ),
    )
    async def check_lock_freshness(data: CheckedIn) -> wire.FreshnessFound:
        """Check whether a lock still satisfies its request; newer versions alone do not make it stale."""
        return await service.ask.do(_check_freshness, registry, data)

    @post(
        "/locks/why",
        opt=READ | ASK | _VALUES,
        status_code=200,
        summary="Why has a lock this version?",
        responses=describe_responses(
            "unknown-name", "integrity", body=True, success={200: describe_body(wire.WhyTold, "Why.", _WHY)}
        ),
    )
    async def explain_lock(data: WhyIn) -> wire.WhyTold:
        """Explain why the lock has this version of an artifact, and not a newer one."""
        return await service.ask.do(_why, registry, data)

    @post(
        "/locks/diff",
        opt=READ | ASK | _VALUES,
        status_code=200,
        summary="What changed between two locks?",
        responses=describe_responses(
            "unknown-name",
            "integrity",
            body=True,
            success={200: describe_body(wire.ChangesTold, "The changes.", {"changes": [_CHANGE]})},
        ),
    )
    async def compare_locks(data: TwoIn) -> wire.ChangesTold:
        """List the changes by artifact; empty if the locks are equal."""
        return await service.ask.do(_changes, registry, data)

    return [check_lock_freshness, explain_lock, compare_locks]


def _resolve(registry: LocalRegistry, data: wire.Question) -> wire.Resolved:
    request = parse_request(data.request, "request")
    if data.drafts:
        return wire.encode_resolution(
            resolve_drafted(request, tuple(map(wire.decode_draft, data.drafts)), registry.catalogue)
        )
    return wire.encode_resolution(
        resolve_request(request, registry.catalogue, wire.decode_preferences(data.preferences))
    )


def _make_or_keep_lock(service: Service, data: wire.Given) -> wire.KeptLock:
    registry = service.registry
    if (data.request is UNSET) == (data.text is UNSET):
        raise InvalidInputError("a lock is made from a request, or kept as a text", next_step="send one of the two")
    if data.text is not UNSET:
        lock = load(data.text, "text")
        with registry.store.writing():
            require_blobs(_blobs_of_every_run(lock), registry.store)
            _check_artifacts(lock, registry)
            registry.catalogue.put_lock(lock)
        return wire.encode_lock(lock, dump(lock))
    assert data.request is not UNSET
    request = parse_request(data.request, "request")
    lock, warnings = make_lock(registry, request, wire.decode_preferences(data.preferences))
    return wire.encode_lock(lock, dump(lock), warnings)


def _check_artifacts(lock: Lock, registry: LocalRegistry) -> None:
    """Raise unless the lock agrees with the manifests and the catalogue.

    Raises:
        IntegrityError: The files, the split or the environment differ from those in the manifests.
        VersionTakenError: A version is published here with other content.
    """
    manifests = read_manifests(lock, registry.store)
    for platform in lock.image.platforms:
        check_agreement(lock, platform, manifests)
    for manifest in manifests.values():
        registry.catalogue.would_change(manifest)


def _blobs_of_every_run(lock: Lock) -> Mapping[Digest, str]:
    """Return the blobs that every platform of the lock needs, and all tree listings, which name further blobs."""
    return {
        reference.digest: reference.name
        for reference in list_blob_references(lock)
        if reference.platform is None or reference.sort == "tree"
    }


def _read_lock(registry: LocalRegistry, lock_id: str, *, as_toml: bool) -> Document:
    """Read the lock whose id is ``lock_id`` or begins with it; its ETag begins with its id."""
    id_ = registry.catalogue.find_lock(lock_id)
    text = registry.catalogue.get_lock(id_)
    lock = load(text, id_)
    return (text.encode(), id_ + _TOML_TAG) if as_toml else (msgspec.json.encode(wire.encode_lock(lock, text)), id_)


def _check_freshness(registry: LocalRegistry, data: wire.Checked) -> wire.FreshnessFound:
    request = parse_request(data.request, "request")
    lock = _load_lock(registry, data.lock, "lock")
    with registry.catalogue.snapshot(request.as_of) as snapshot:
        return wire.encode_freshness(check_lock(lock, request, snapshot))


def _why(registry: LocalRegistry, data: wire.WhyAsked) -> wire.WhyTold:
    kind, name, constraint = parse_target(data.target)
    if constraint is not None:
        raise InvalidInputError(
            f"{data.target} has a constraint", where="target", next_step=f"name {kind}/{name}: a lock has one version"
        )
    explanation = explain_locked_version(_load_lock(registry, data.lock, "lock"), kind, name, registry.catalogue)
    return wire.WhyTold(prose=explanation.prose(), why=explanation.as_json())


def _changes(registry: LocalRegistry, data: wire.TwoLocks) -> wire.ChangesTold:
    locks = [_load_lock(registry, data.before, "before"), _load_lock(registry, data.after, "after")]
    changes = diff(locks[0], locks[1], known_manifests(locks, registry.store))
    return wire.ChangesTold(
        changes=tuple(
            wire.ChangeTold(subject=change.subject, before=change.before, after=change.after, details=change.details)
            for change in changes
        )
    )


def _load_lock(registry: LocalRegistry, text: str, where: str) -> Lock:
    """Load a lock from its text, or by its id or the beginning of its id."""
    if text.startswith(_ID):
        return load(registry.catalogue.get_lock(registry.catalogue.find_lock(text)), text)
    return load(text, where)
