"""Routes for locks: resolve, lock, read, check, explain and compare."""

from typing import Annotated, Any

import msgspec
from litestar import Controller, get, post
from litestar.params import Body, Parameter
from msgspec import UNSET

from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.http.openapi import describe_body, describe_empty_body, describe_responses, encode_example
from benchlock.api.http.request_authorization import READ, RUN
from benchlock.api.http.request_limits import ASK
from benchlock.api.http.request_parsing import MAX_LOCK_VALUES, MAX_RECORD, Injected, JsonRequest
from benchlock.api.http.responses import CACHE_AND_REVALIDATE, CACHE_FOREVER, JSON, BytesResponse, respond_with_etag
from benchlock.api.http.service_state import Document, Service
from benchlock.api.schemas import lock_schemas as wire
from benchlock.api.schemas.registry_protocol import ChoiceExplanation
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.artifact_names import parse_target
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.lock.lock_assembly import Freshness
from benchlock.registry.lock.lock_creation import known_manifests
from benchlock.registry.lock.lock_diff import diff
from benchlock.registry.lock.lockfile import dump, load
from benchlock.registry.requests.evaluation_request import parse_request

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

ResolveIn = Annotated[
    wire.ResolveRequest, Body(examples=[encode_example({"request": REQUEST, "preferences": [_PREFERENCE_EXAMPLE]})])
]
LockIn = Annotated[
    wire.LockRequest, Body(examples=[encode_example({"request": REQUEST}), encode_example({"text": _LOCK})])
]
CheckIn = Annotated[
    wire.LockCheckRequest, Body(examples=[encode_example({"lock": _ID + "1c2ab5b6", "request": REQUEST})])
]
ExplainIn = Annotated[
    wire.ExplainRequest, Body(examples=[encode_example({"lock": _ID + "1c2ab5b6", "target": "framework/onnxruntime"})])
]
DiffIn = Annotated[wire.LockDiffRequest, Body(examples=[encode_example({"before": _ID + "1c2ab5b6", "after": _LOCK})])]
IdIn = Annotated[
    str,
    Parameter(
        description="The id of the lock, or at least its first 4 hex digits.",
        max_length=len(_ID) + 64,
        examples=[encode_example("sha256:1c2ab5b6")],
    ),
]


class LockController(Controller):
    """Routes ``/v1/resolve`` and ``/v1/locks``."""

    tags = ("locks",)
    request_max_body_size = MAX_RECORD

    @post(
        "/resolve",
        opt=READ | ASK,
        status_code=200,
        summary="Resolve a request",
        responses=describe_responses(
            "conflict",
            "unknown-name",
            body=True,
            success={
                200: describe_body(wire.ResolveResponse, "The versions that satisfy the request.", _RESOLUTION_EXAMPLE)
            },
        ),
    )
    async def resolve_request(self, service: Injected[Service], data: ResolveIn) -> wire.ResolveResponse:
        """Choose the versions that satisfy the request; 409 with `conflict` explains why none do. Stores nothing."""
        return await service.ask.do(_resolve, service.embedded, data)

    @post(
        "/locks",
        opt=RUN | ASK | _VALUES,
        status_code=201,
        summary="Create or store a lock",
        responses=describe_responses(
            "conflict",
            "missing-blobs",
            "unknown-name",
            "integrity",
            body=True,
            success={201: describe_body(wire.LockResponse, "The stored lock.", _LOCK_EXAMPLE)},
        ),
    )
    async def create_lock(self, service: Injected[Service], data: LockIn) -> wire.LockResponse:
        """Resolve and lock a `request`, or store the lock in `text` as it is. Repeating the request has no effect."""
        return await service.ask.do(_create_lock, service.embedded, data)

    @get(
        "/locks/{lock_id:str}",
        opt=READ,
        summary="Read a lock",
        responses=describe_responses(
            "unknown-name",
            "invalid-input",
            success={
                200: describe_body(
                    wire.LockResponse, "The lock; as TOML if the Accept header requests it.", _LOCK_EXAMPLE
                ),
                304: describe_empty_body("Unchanged since the ETag in If-None-Match."),
            },
        ),
    )
    async def read_lock(self, service: Injected[Service], lock_id: IdIn, request: JsonRequest) -> BytesResponse:
        """Read a lock by its id, or by the unique beginning of its id."""
        is_toml = TOML in request.headers.get("accept", "")
        media_type = TOML if is_toml else JSON
        document, number = service.reads.get((lock_id, media_type))
        if document is None:
            document = await service.work.do(_read_lock, service.registry.catalogue, lock_id, as_toml=is_toml)
            service.reads.put((lock_id, media_type), document, number)
        text, tag = document
        is_whole = tag.removesuffix(_TOML_TAG) == lock_id  # a later lock may have the same beginning
        caching = CACHE_FOREVER if is_whole else CACHE_AND_REVALIDATE
        return respond_with_etag(text, tag, request.headers.get("if-none-match"), caching, media_type, vary="Accept")

    @post(
        "/locks/check",
        opt=READ | ASK | _VALUES,
        status_code=200,
        summary="Check whether a lock is stale",
        responses=describe_responses(
            "unknown-name",
            "integrity",
            body=True,
            success={200: describe_body(Freshness, "Whether the lock satisfies its request.", _FRESHNESS_EXAMPLE)},
        ),
    )
    async def check_lock_freshness(self, service: Injected[Service], data: CheckIn) -> Freshness:
        """Check whether a lock still satisfies its request; newer versions alone do not make it stale."""
        return await service.ask.do(_check_lock, service.embedded, data)

    @post(
        "/locks/why",
        opt=READ | ASK | _VALUES,
        status_code=200,
        summary="Explain a locked version",
        responses=describe_responses(
            "unknown-name",
            "integrity",
            body=True,
            success={200: describe_body(ChoiceExplanation, "The explanation.", _WHY)},
        ),
    )
    async def explain_lock(self, service: Injected[Service], data: ExplainIn) -> ChoiceExplanation:
        """Explain why the lock has this version of an artifact, and not a newer one."""
        return await service.ask.do(_explain, service.embedded, data)

    @post(
        "/locks/diff",
        opt=READ | ASK | _VALUES,
        status_code=200,
        summary="Compare two locks",
        responses=describe_responses(
            "unknown-name",
            "integrity",
            body=True,
            success={200: describe_body(wire.LockDiff, "The changes.", {"changes": [_CHANGE]})},
        ),
    )
    async def compare_locks(self, service: Injected[Service], data: DiffIn) -> wire.LockDiff:
        """List the changes by artifact; empty if the locks are equal."""
        return await service.ask.do(_compare, service.embedded, data)


def _resolve(registry: EmbeddedRegistry, data: wire.ResolveRequest) -> wire.ResolveResponse:
    request, drafts = parse_request(data.request, "request"), tuple(map(wire.decode_draft, data.drafts))
    return wire.encode_resolution(registry.resolve(request, wire.decode_preferences(data.preferences), drafts))


def _create_lock(registry: EmbeddedRegistry, data: wire.LockRequest) -> wire.LockResponse:
    if (data.request is UNSET) == (data.text is UNSET):
        raise InvalidInputError("exactly one of request and text is required", next_step="send one of the two")
    if data.text is not UNSET:
        lock = load(data.text, "text")
        registry.receive_lock(lock)
        return wire.encode_lock(lock, dump(lock))
    assert data.request is not UNSET
    result = registry.lock(parse_request(data.request, "request"), wire.decode_preferences(data.preferences))
    return wire.encode_lock(result.lock, dump(result.lock), result.warnings)


def _read_lock(catalogue: Catalogue, lock_id: str, *, as_toml: bool) -> Document:
    """Read the lock whose id is ``lock_id`` or begins with it; its ETag begins with its id."""
    id_ = catalogue.find_lock(lock_id)
    text = catalogue.get_lock(id_)
    lock = load(text, id_)
    return (text.encode(), id_ + _TOML_TAG) if as_toml else (msgspec.json.encode(wire.encode_lock(lock, text)), id_)


def _check_lock(registry: EmbeddedRegistry, data: wire.LockCheckRequest) -> Freshness:
    request = parse_request(data.request, "request")
    return registry.check(registry.load_lock(data.lock, "lock"), request)


def _explain(registry: EmbeddedRegistry, data: wire.ExplainRequest) -> ChoiceExplanation:
    kind, name, constraint = parse_target(data.target)
    if constraint is not None:
        raise InvalidInputError(
            f"{data.target} has a constraint", where="target", next_step=f"name {kind}/{name}: a lock has one version"
        )
    return registry.why(registry.load_lock(data.lock, "lock"), kind, name)


def _compare(registry: EmbeddedRegistry, data: wire.LockDiffRequest) -> wire.LockDiff:
    before, after = registry.load_lock(data.before, "before"), registry.load_lock(data.after, "after")
    return wire.LockDiff(changes=diff(before, after, known_manifests((before, after), registry.store)))
