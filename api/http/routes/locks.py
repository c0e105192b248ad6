"""From a question to a lock: resolving, locking, reading a lock again, and asking about it."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from litestar import Request as HttpRequest
from litestar import Router, get, post
from litestar.handlers import BaseRouteHandler
from litestar.params import Body, Parameter
from msgspec import UNSET

from benchlock.api.http.asked import MOST_LOCK_VALUES
from benchlock.api.http.conditional import FOR_EVER, MUST_ASK, Encoded, tagged
from benchlock.api.http.documented import answers, content, example, nothing
from benchlock.api.http.guards import READ, RUN
from benchlock.api.http.making import make_lock
from benchlock.api.http.places import ASK
from benchlock.api.http.service import Service
from benchlock.api.wire import locks as wire
from benchlock.api.wiring import Registry
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.runner.agreement import check_agreement
from benchlock.evaluator.runner.verification import read_manifests
from benchlock.registry.accepting import refuse_missing
from benchlock.registry.difference import diff
from benchlock.registry.lockfile import Lock, dump, load
from benchlock.registry.locks import known_manifests, resolve_drafted, resolve_request, why_chosen
from benchlock.registry.named import named
from benchlock.registry.names import parse_target
from benchlock.registry.requests import parse_request
from benchlock.registry.staleness import check_lock

TOML = "application/toml"
_ID = "sha256:"
_VALUES = {"most_values": MOST_LOCK_VALUES}

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
_STALE = {"fresh": False, "reasons": ["seed was 7, is 8"], "warnings": []}
_PREFERRED = {"kind": "model", "name": "acme/resnet8", "version": "1.0.0"}
_CHOSEN = {**_PREFERRED, "digest": _ID + "0" * 64, "yanked": None}
_RESOLVED: Any = {
    **{kind: {**_CHOSEN, "kind": kind} for kind in ("model", "framework", "image", "dataset")},
    "platforms": [{"os": "linux", "arch": "amd64", "device": "cpu", "python": "3.11", "layered": True}],
}
_KEPT = {"lock": _ID + "0" * 64, "text": _LOCK, "warnings": []}
_CHANGE = {"subject": "model/acme/resnet8", "before": "1.0.0", "after": "1.1.0", "details": ["weights changed"]}
_WHY = {"prose": "framework/onnxruntime 1.20.0 …", "why": {"kind": "framework", "name": "onnxruntime"}}

QuestionIn = Annotated[wire.Question, Body(examples=[example({"request": REQUEST, "preferences": [_PREFERRED]})])]
GivenIn = Annotated[wire.Given, Body(examples=[example({"request": REQUEST}), example({"text": _LOCK})])]
CheckedIn = Annotated[wire.Checked, Body(examples=[example({"lock": _ID + "1c2ab5b6", "request": REQUEST})])]
WhyIn = Annotated[
    wire.WhyAsked, Body(examples=[example({"lock": _ID + "1c2ab5b6", "target": "framework/onnxruntime"})])
]
TwoIn = Annotated[wire.TwoLocks, Body(examples=[example({"before": _ID + "1c2ab5b6", "after": _LOCK})])]
IdIn = Annotated[
    str,
    Parameter(
        description="The lock's id, or at least the first 8 of its hex digits.",
        max_length=len(_ID) + 64,
        examples=[example("sha256:1c2ab5b6")],
    ),
]


def routes(service: Service) -> Router:
    """``/v1/resolve``, ``/v1/locks`` and what is asked of locks."""
    registry = service.registry

    @post(
        "/resolve",
        opt=READ | ASK,
        status_code=200,
        summary="Resolve a request",
        responses=answers(
            "conflict", "unknown-name", body=True, success={200: content(wire.Resolved, "What answers it.", _RESOLVED)}
        ),
    )
    async def resolve_request(data: QuestionIn) -> wire.Resolved:
        """Which versions answer the request; 409 with `conflict` says why none do. Writes nothing."""
        return await service.ask.do(_resolved, registry, data)

    @post(
        "/locks",
        opt=RUN | ASK | _VALUES,
        status_code=201,
        summary="Make a lock, or keep one",
        responses=answers(
            "conflict",
            "missing-blobs",
            "unknown-name",
            "integrity",
            body=True,
            success={201: content(wire.KeptLock, "The lock, kept.", _KEPT)},
        ),
    )
    async def create_lock(data: GivenIn) -> wire.KeptLock:
        """From a `request`, the lock that answers it; a `text` is kept as it is. The same again changes nothing."""
        return await service.ask.do(_locked, service, data)

    return Router(
        "",
        route_handlers=[resolve_request, create_lock, _reading(service), *_questions(service)],
        tags=["locks"],
        request_max_body_size=service.settings.largest_body,
    )


def _reading(service: Service) -> BaseRouteHandler:
    registry = service.registry

    @get(
        "/locks/{lock_id:str}",
        opt=READ,
        summary="Read a lock",
        responses=answers(
            "unknown-name",
            "invalid-input",
            success={
                200: content(wire.KeptLock, "The lock; as TOML where Accept asks for it.", _KEPT),
                304: nothing("It is what If-None-Match names."),
            },
        ),
    )
    async def read_lock(lock_id: IdIn, request: HttpRequest[Any, Any, Any]) -> Encoded:
        """A lock by its id, or what its id alone begins with."""
        id_ = await service.work.look_up(registry.catalogue.find_lock, lock_id)
        is_toml = TOML in request.headers.get("accept", "")
        tag, media_type = (f"{id_}-toml", TOML) if is_toml else (id_, "application/json")
        text = service.kept.get(tag)
        if text is None:
            text = await service.work.do(_encoded, registry, id_, as_toml=is_toml)
            service.kept.put(tag, text, len(text))
        caching = FOR_EVER if lock_id == id_ else MUST_ASK  # another lock may begin so one day
        return tagged(text, tag, request.headers.get("if-none-match"), caching, media_type, vary="Accept")

    return read_lock


def _questions(service: Service) -> list[Any]:
    """What is asked about locks, which the registry need not have."""
    registry = service.registry

    @post(
        "/locks/check",
        opt=READ | ASK | _VALUES,
        status_code=200,
        summary="Does a lock still answer its request?",
        responses=answers(
            "unknown-name",
            "integrity",
            body=True,
            success={200: content(wire.FreshnessFound, "Whether it does.", _STALE)},
        ),
    )
    async def check_lock_freshness(data: CheckedIn) -> wire.FreshnessFound:
        """A newer version makes no lock stale; `reasons` say what does."""
        return await service.ask.do(_checked, registry, data)

    @post(
        "/locks/why",
        opt=READ | ASK | _VALUES,
        status_code=200,
        summary="Why has a lock this version?",
        responses=answers("unknown-name", "integrity", body=True, success={200: content(wire.WhyTold, "Why.", _WHY)}),
    )
    async def explain_lock(data: WhyIn) -> wire.WhyTold:
        """Why the lock has this version of an artifact, and why no newer one."""
        return await service.ask.do(_why, registry, data)

    @post(
        "/locks/diff",
        opt=READ | ASK | _VALUES,
        status_code=200,
        summary="What changed between two locks?",
        responses=answers(
            "unknown-name",
            "integrity",
            body=True,
            success={200: content(wire.ChangesTold, "The changes.", {"changes": [_CHANGE]})},
        ),
    )
    async def compare_locks(data: TwoIn) -> wire.ChangesTold:
        """The changes by artifact; none where it is the same lock."""
        return await service.ask.do(_changes, registry, data)

    return [check_lock_freshness, explain_lock, compare_locks]


def _resolved(registry: Registry, data: wire.Question) -> wire.Resolved:
    request = parse_request(data.request, "request")
    if data.drafts:
        return wire.resolved_on_wire(
            resolve_drafted(request, tuple(map(wire.draft_of, data.drafts)), registry.catalogue)
        )
    return wire.resolved_on_wire(resolve_request(request, registry.catalogue, wire.preferences_of(data.preferences)))


def _locked(service: Service, data: wire.Given) -> wire.KeptLock:
    registry = service.registry
    if (data.request is UNSET) == (data.text is UNSET):
        raise InvalidInputError("a lock is made from a request, or kept as a text", next_step="send one of the two")
    if data.text is not UNSET:
        kept = load(data.text, "text")
        with registry.store.writing():
            refuse_missing(_of_every_run(kept), registry.store)
            _check_artifacts(kept, registry)
            registry.catalogue.put_lock(kept)
        return wire.kept_on_wire(kept, dump(kept))
    assert data.request is not UNSET
    request = parse_request(data.request, "request")
    made, warnings = make_lock(registry, request, wire.preferences_of(data.preferences))
    return wire.kept_on_wire(made, dump(made), warnings)


def _check_artifacts(lock: Lock, registry: Registry) -> None:
    """Raise unless the lock says of its artifacts what their manifests and the catalogue say.

    Raises:
        IntegrityError: The files, the split or the environment are not those of the manifests.
        VersionTakenError: A version is published here with other content.
    """
    manifests = read_manifests(lock, registry.store)
    for platform in lock.image.platforms:
        check_agreement(lock, platform, manifests)
    for manifest in manifests.values():
        registry.catalogue.would_change(manifest)


def _of_every_run(lock: Lock) -> Mapping[Digest, str]:
    """What the lock names for all platforms, and all listings of trees, without which nobody knows what it names."""
    return {one.digest: one.name for one in named(lock) if one.platform is None or one.sort == "tree"}


def _encoded(registry: Registry, id_: Digest, *, as_toml: bool) -> bytes:
    text = registry.catalogue.get_lock(id_)
    lock = load(text, id_)
    return text.encode() if as_toml else msgspec.json.encode(wire.kept_on_wire(lock, text))


def _checked(registry: Registry, data: wire.Checked) -> wire.FreshnessFound:
    request = parse_request(data.request, "request")
    lock = _lock_of(registry, data.lock, "lock")
    with registry.catalogue.snapshot(request.as_of) as snapshot:
        return wire.freshness_on_wire(check_lock(lock, request, snapshot))


def _why(registry: Registry, data: wire.WhyAsked) -> wire.WhyTold:
    kind, name, constraint = parse_target(data.target)
    if constraint is not None:
        raise InvalidInputError(
            f"{data.target} has a constraint", where="target", next_step=f"name {kind}/{name}: a lock has one version"
        )
    found = why_chosen(_lock_of(registry, data.lock, "lock"), kind, name, registry.catalogue)
    return wire.WhyTold(prose=found.prose(), why=found.as_json())


def _changes(registry: Registry, data: wire.TwoLocks) -> wire.ChangesTold:
    locks = [_lock_of(registry, data.before, "before"), _lock_of(registry, data.after, "after")]
    found = diff(locks[0], locks[1], known_manifests(locks, registry.store))
    return wire.ChangesTold(
        changes=tuple(
            wire.ChangeTold(subject=one.subject, before=one.before, after=one.after, details=one.details)
            for one in found
        )
    )


def _lock_of(registry: Registry, text: str, where: str) -> Lock:
    """A lock by its text, or by what its id begins with."""
    if text.startswith(_ID):
        return load(registry.catalogue.get_lock(registry.catalogue.find_lock(text)), text)
    return load(text, where)
