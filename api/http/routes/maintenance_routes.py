"""Routes for bundle import, verification and garbage collection."""

from functools import partial
from typing import Annotated, Final

from litestar import Controller, post
from litestar.params import Body

from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.http.openapi import describe_body, describe_responses, encode_example
from benchlock.api.http.request_authorization import ADMIN, PUBLISH
from benchlock.api.http.request_limits import WHILE_FULL
from benchlock.api.http.request_parsing import Injected
from benchlock.api.http.service_state import Service
from benchlock.api.schemas import maintenance_schemas as wire
from benchlock.artifacts.digest import parse_digest
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.workflows.bundles import BundleAdmission
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.lock.lockfile import Lock
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

BundleIn = Annotated[wire.BundleImportRequest, Body(examples=[encode_example({"blob": _DIGEST})])]
VerifyIn = Annotated[
    wire.VerificationRequest, Body(examples=[encode_example({"targets": ["model/acme/resnet8@1.0.0"]})])
]
CollectIn = Annotated[wire.GcRequest, Body(examples=[encode_example({"dry_run": True})])]


class MaintenanceController(Controller):
    """Routes that import bundles, verify blobs and collect garbage."""

    tags = ("upkeep",)

    @post(
        "/bundles",
        opt=PUBLISH,
        status_code=200,
        summary="Import a bundle",
        responses=describe_responses(
            "missing-blobs",
            "integrity",
            body=True,
            success={200: describe_body(wire.ImportReport, "The imported content.", _IMPORT_EXAMPLE)},
        ),
    )
    async def import_bundle(self, service: Injected[Service], data: BundleIn) -> wire.ImportReport:
        """Check a bundle that was uploaded as a blob and import its blobs, lock and runs; existing names do not change.

        A bundle's artifacts need the scope `publish`, its lock with runs the scope `run`.
        """
        return await service.long.do(_import_bundle, service, data)

    @post(
        "/verifications",
        opt=MAINTENANCE,
        status_code=200,
        summary="Verify blob checksums",
        responses=describe_responses(
            "unknown-name",
            "integrity",
            body=True,
            success={
                200: describe_body(wire.VerificationReport, "The result of the verification.", _VERIFICATION_EXAMPLE)
            },
        ),
    )
    async def verify_bytes(self, service: Injected[Service], data: VerifyIn) -> wire.VerificationReport:
        """Read the blobs of the targets, or all blobs, and compare them with their digests."""
        return await service.long.do(_verify, service.embedded, data)

    @post(
        "/collections",
        opt=MAINTENANCE,
        status_code=200,
        summary="Delete unreferenced blobs",
        responses=describe_responses(
            "integrity",
            body=True,
            success={
                200: describe_body(
                    wire.GcReport, "The deleted blobs, or those that a dry run would delete.", _COLLECTION_EXAMPLE
                )
            },
        ),
    )
    async def collect_garbage(self, service: Injected[Service], data: CollectIn) -> wire.GcReport:
        """Delete blobs that no version, lock or run refers to and that were not uploaded within the last day.

        `leftovers` are unfinished files of killed writers, which are deleted too.
        """
        return await service.long.do(service.embedded.collect, dry_run=data.dry_run, local=data.local)


def _import_bundle(service: Service, data: wire.BundleImportRequest) -> wire.ImportReport:
    store, digest = service.registry.store, parse_digest(data.blob)
    admission = BundleAdmission(_MAX_FILES, partial(service.uploads.charge, get_actor().id))
    with store.writing():
        require_blobs({digest: "the bundle"}, store)
        return service.embedded.import_bundle(store.path(digest), SILENT, admission)


def _verify(registry: EmbeddedRegistry, data: wire.VerificationRequest) -> wire.VerificationReport:
    targets = [_parse_target(registry, target) for target in data.targets]
    return registry.verify(targets, SILENT, remote=data.remote, head=data.head)


def _parse_target(registry: EmbeddedRegistry, target: str) -> str | Lock:
    """Load the lock if ``target`` is the id or text of one, else return it unchanged."""
    return registry.load_lock(target, "targets") if target.startswith("sha256:") or "\n" in target else target
