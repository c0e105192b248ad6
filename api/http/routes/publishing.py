"""Publishing a version whose blobs were sent before, and hiding one from new resolutions."""

from typing import Annotated

import msgspec
from litestar import Router, post
from litestar.params import Body
from msgspec import UNSET

from benchlock.api.http.asked import LONG_BODY, Asked
from benchlock.api.http.conditional import JSON, Encoded
from benchlock.api.http.documented import answers, content, example
from benchlock.api.http.guards import PUBLISH
from benchlock.api.http.service import Service
from benchlock.api.http.space import WHILE_FULL, reserve_share
from benchlock.api.wire.artifacts import Publication, PublishedVersion, Yank, Yanked, published_on_wire
from benchlock.artifacts.digest import Digest
from benchlock.registry.accepting import accept, parse_accepted
from benchlock.registry.catalogue.entries import Provenance
from benchlock.registry.names import parse_reference

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

PublicationIn = Annotated[Publication, Body(examples=[example(_PUBLICATION)])]
YankIn = Annotated[Yank, Body(examples=[example(_YANK)])]


def routes(service: Service) -> Router:
    """``POST /v1/artifacts`` and ``POST /v1/yanks``."""
    catalogue, store = service.registry.catalogue, service.registry.store

    def published(data: Publication) -> PublishedVersion:
        if not data.dry_run:
            service.reserve.require(0, reserve_share())
        warnings: list[str] = []
        manifest = parse_accepted(data.manifest, None if data.digest is UNSET else Digest(data.digest))
        provenance = Provenance(data.authored, data.sources)
        done = accept(manifest, provenance, store, catalogue, warn=warnings.append, dry_run=data.dry_run)
        return published_on_wire(done, tuple(warnings))

    @post(
        "/artifacts",
        opt=PUBLISH | WHILE_FULL | {"most_values": service.settings.most_values},
        status_code=200,
        summary="Publish a version",
        responses=answers(
            "missing-blobs",
            "version-taken",
            "integrity",
            body=True,
            success={
                200: content(PublishedVersion, "It was there, or it is a dry run.", _PUBLISHED | {"changed": False}),
                201: content(PublishedVersion, "It is published.", _PUBLISHED),
            },
        ),
    )
    async def publish_version(request: Asked, data: PublicationIn) -> Encoded:
        """Checks the manifest and its files as publishing does; 409 with `blobs` names what is to be sent first.

        Files are read by a process with limits: 1 GiB of memory, 60 seconds of processor time, 300 seconds.
        """
        long = len(await request.body()) > LONG_BODY
        work = service.inspect if long or data.manifest.get("files") else service.work
        done = await work.do(published, data)
        return Encoded(msgspec.json.encode(done), JSON, {}, status=201 if done.changed and not data.dry_run else 200)

    def marked(data: Yank) -> Yanked:
        reference = parse_reference(data.target)
        changed = catalogue.unyank(reference) if data.undo else catalogue.yank(reference, data.reason)
        return Yanked(target=str(reference), yanked=not data.undo, changed=changed)

    @post(
        "/yanks",
        opt=PUBLISH | WHILE_FULL,
        status_code=200,
        summary="Yank a version, or undo it",
        responses=answers("unknown-name", body=True, success={200: content(Yanked, "So it is.", _YANKED)}),
    )
    async def yank_version(data: YankIn) -> Yanked:
        """Hides a version from new resolutions; locks that name it still run."""
        return await service.work.do(marked, data)

    return Router(
        "",
        route_handlers=[publish_version, yank_version],
        tags=["artifacts"],
        request_max_body_size=service.settings.largest_publication,
    )
