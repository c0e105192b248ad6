"""Routes for bundle import, verification and garbage collection."""

from functools import partial
from typing import Annotated, Final

from litestar import Router, post
from litestar.params import Body

from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.http.admission_control import WHILE_FULL
from benchlock.api.http.openapi import describe_body, describe_responses, encode_example
from benchlock.api.http.request_authorization import ADMIN, PUBLISH
from benchlock.api.http.service import Service
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas import maintenance_schemas as wire
from benchlock.artifacts.digest import parse_digest
from benchlock.artifacts.user_text import SILENT
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.lock.lockfile import Lock, load
from benchlock.registry.publishing.remote_publication import require_blobs

MAINTENANCE = ADMIN | WHILE_FULL | {"rate": 10.0}
"""The options of routes that may read the whole registry."""
_MAX_FILES: Final = 1 << 16
"""Maximum number of files in a bundle: each takes memory while it is imported."""
_DIGEST = "sha256:" + "0" * 64
_IMPORT_EXAMPLE = {
    "lock": _DIGEST,
    "changed": True,
    "runs": [{"run": "run/01kam1v3mz4w0q3d5g7h9j2k4m", "changed": True}],
    "platforms": ["linux/amd64/cpu"],
    "artifacts": [],
    "kept_out": [],
    "blobs": 12,
    "warnings": [],
}
_VERIFICATION_EXAMPLE = {"blobs": 12, "damaged": []}
_COLLECTION_EXAMPLE = {
    "blobs": 3,
    "bytes": 4096,
    "dry_run": False,
    "local": None,
    "leftovers": {"files": 2, "bytes": 1024},
}

BundleIn = Annotated[wire.BundleSent, Body(examples=[encode_example({"blob": _DIGEST})])]
VerifyIn = Annotated[wire.ToVerify, Body(examples=[encode_example({"targets": ["model/acme/resnet8@1.0.0"]})])]
CollectIn = Annotated[wire.ToCollect, Body(examples=[encode_example({"dry_run": True})])]


def routes(service: Service) -> Router:
    """Build the routes ``POST /v1/bundles``, ``POST /v1/verifications`` and ``POST /v1/collections``."""
    registry = service.registry
    embedded = EmbeddedRegistry(registry)

    @post(
        "/bundles",
        opt=PUBLISH,
        status_code=200,
        summary="Take in a bundle",
        responses=describe_responses(
            "missing-blobs",
            "integrity",
            body=True,
            success={200: describe_body(wire.BundleTold, "What came.", _IMPORT_EXAMPLE)},
        ),
    )
    async def import_bundle(data: BundleIn) -> wire.BundleTold:
        """Check a bundle that was uploaded as a blob and import its blobs, lock and runs; existing names do not change.

        A bundle's artifacts need the scope `publish`, its lock with runs the scope `run`.
        """
        return await service.long.do(_import_bundle, service, embedded, data)

    @post(
        "/verifications",
        opt=MAINTENANCE,
        status_code=200,
        summary="Read bytes again",
        responses=describe_responses(
            "unknown-name",
            "integrity",
            body=True,
            success={200: describe_body(wire.VerifiedTold, "What it found.", _VERIFICATION_EXAMPLE)},
        ),
    )
    async def verify_bytes(data: VerifyIn) -> wire.VerifiedTold:
        """Read the blobs of the targets, or all blobs, and compare them with their digests."""
        return await service.long.do(_verify, registry, embedded, data)

    @post(
        "/collections",
        opt=MAINTENANCE,
        status_code=200,
        summary="Free what nothing names",
        responses=describe_responses(
            "integrity",
            body=True,
            success={200: describe_body(wire.CollectedTold, "What went, or would go.", _COLLECTION_EXAMPLE)},
        ),
    )
    async def collect_garbage(data: CollectIn) -> wire.CollectedTold:
        """Delete blobs that no version, lock or run refers to and that were not uploaded within the last day.

        `leftovers` are unfinished files of killed writers, which are deleted too.
        """
        return await service.long.do(_collect_garbage, embedded, data)

    return Router("", route_handlers=[import_bundle, verify_bytes, collect_garbage], tags=["upkeep"])


def _import_bundle(service: Service, embedded: EmbeddedRegistry, data: wire.BundleSent) -> wire.BundleTold:
    from benchlock.evaluator.workflows.bundles import BundleAdmission  # noqa: PLC0415 - imports scipy

    registry, digest = service.registry, parse_digest(data.blob)
    admission = BundleAdmission(_MAX_FILES, partial(service.uploads.charge, get_actor().id))
    with registry.store.writing():
        require_blobs({digest: "the bundle"}, registry.store)
        return wire.encode_import_report(embedded.import_bundle(registry.store.path(digest), SILENT, admission))


def _verify(registry: LocalRegistry, embedded: EmbeddedRegistry, data: wire.ToVerify) -> wire.VerifiedTold:
    targets = [_parse_target(registry, target) for target in data.targets]
    return wire.encode_verification(embedded.verify(targets, SILENT, remote=data.remote, head=data.head))


def _collect_garbage(embedded: EmbeddedRegistry, data: wire.ToCollect) -> wire.CollectedTold:
    return wire.encode_gc_report(embedded.collect(dry_run=data.dry_run, local=data.local), dry_run=data.dry_run)


def _parse_target(registry: LocalRegistry, target: str) -> str | Lock:
    """Load the lock if ``target`` is the id or text of one, else return it unchanged."""
    if target.startswith("sha256:"):
        return load(registry.catalogue.get_lock(registry.catalogue.find_lock(target)), target)
    return load(target, "targets") if "\n" in target else target
