"""Blobs, by digest alone: read whole or in part, and uploaded by the paths of the OCI distribution protocol."""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from litestar import HttpMethod, Request, Response, Router, delete, get, patch, post, put, route
from litestar.handlers import BaseRouteHandler
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody, Schema
from litestar.params import HeaderParameter, Parameter
from litestar.response.base import ASGIResponse

from benchlock.api.http.answers import on_error
from benchlock.api.http.conditional import FOR_EVER, is_known
from benchlock.api.http.documented import answers, content, example, nothing
from benchlock.api.http.guards import READ, UPLOAD
from benchlock.api.http.places import READ_BLOB, SEND
from benchlock.api.http.ranges import MalformedUploadError, NotInContentError, asked_part
from benchlock.api.http.sending import BlobResponse
from benchlock.api.http.service import Service
from benchlock.api.http.space import WHILE_FULL
from benchlock.api.http.uploading import Uploading
from benchlock.artifacts.digest import Digest, digest_bytes, parse_digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.store import FileStore
from benchlock.artifacts.uploads import OutOfPlaceError

_BYTES: Final = "application/octet-stream"
_EXAMPLE: Final = digest_bytes(b"")

_BLOB_HEADERS: Final = {"Location": "The path of the blob.", "Docker-Content-Digest": "The digest of the blob."}
_UPLOAD_HEADERS: Final = {
    "Location": "The path of the upload.",
    "Range": "The bytes of the upload that are stored, as `0-END`; absent where there are none.",
    "Docker-Upload-UUID": "The id of the upload.",
}

_DIGEST: Final = {"pattern": "^sha256:[0-9a-f]{64}$"}
"""Described; it is this package's own parser that refuses, and says what to write."""

DigestIn = Annotated[
    str, Parameter(description="Of the whole blob.", examples=[example(_EXAMPLE)], schema_extra=_DIGEST)
]
UploadIn = Annotated[
    str,
    Parameter(
        description="The id of an upload, from its Location.",
        examples=[example("0" * 32)],
        schema_extra={"pattern": "^[0-9a-f]{32}$"},
    ),
]
RangeIn = Annotated[
    str | None,
    HeaderParameter(name="Range", description="One range of bytes.", examples=[example("bytes=0-99")]),
]
KnownIn = Annotated[str | None, HeaderParameter(name="If-None-Match", description="The ETag of what the client has.")]
SameIn = Annotated[str | None, HeaderParameter(name="If-Range", description="The ETag of what the range is of.")]
PlaceIn = Annotated[
    str | None,
    HeaderParameter(name="Content-Range", description="Where the body belongs.", examples=[example("0-99")]),
]
Finished = Annotated[
    str | None,
    Parameter(description="Of the body, which is the whole blob.", required=False, schema_extra=_DIGEST),
]
Mounted = Annotated[
    str | None,
    Parameter(description="Where this blob is there, nothing is sent.", required=False, schema_extra=_DIGEST),
]


@dataclass
class Sent(Operation):
    """An operation whose body is bytes, which no handler of ours is given whole."""

    def __post_init__(self) -> None:
        some = OpenAPIMediaType(schema=Schema(examples=["bytes"]))
        self.request_body = RequestBody(content={_BYTES: some}, description="Bytes of the blob.")


def routes(service: Service) -> Router:
    """``/v1/blobs``."""
    told = {OutOfPlaceError: _out_of_place, NotInContentError: _not_in_content}
    handlers = [_reading(service), *_beginning(Uploading(service))]
    return Router("", route_handlers=handlers, tags=["blobs"], exception_handlers=told)  # type: ignore[arg-type]


def _reading(service: Service) -> BaseRouteHandler:
    work, store = service.work, service.registry.store

    @route(
        "/blobs/{digest:str}",
        http_method=[HttpMethod.GET, HttpMethod.HEAD],
        opt=READ | READ_BLOB,
        summary="Read a blob",
        responses=answers(
            "unknown-name",
            "invalid-input",
            "range-not-satisfiable",
            success={
                200: _bytes("The blob."),
                206: _bytes("The part of it that Range asks for, where that is one."),
                304: nothing("It is what If-None-Match names."),
            },
        ),
    )
    async def read_blob(
        digest: DigestIn,
        request: Request[Any, Any, Any],
        part: RangeIn = None,
        known: KnownIn = None,
        same: SameIn = None,
    ) -> ASGIResponse:
        """The bytes, or one range of them.

        They never change, so whoever has them need not ask again; but who may read them is asked of everybody: caches
        that several people share must not keep them.
        """
        blob = _parse_digest(digest)
        headers = {
            "etag": f'"{blob}"',
            "cache-control": FOR_EVER,
            "accept-ranges": "bytes",
            "docker-content-digest": blob,
        }
        if is_known(blob, known):
            await work.do(store.stat, blob)
            return ASGIResponse(status_code=304, headers=headers)
        if request.method == HttpMethod.HEAD:
            headers["content-length"] = str((await work.do(store.stat, blob)).size)
            headers["content-type"] = _BYTES  # Litestar says it of no answer without a body
            return ASGIResponse(headers=headers, is_head_response=True)
        source, size = await work.do(_found, store, blob)
        asked = part if same in (None, headers["etag"]) else None
        return BlobResponse(source, size, asked_part(asked, size), headers, work=service.send, memory=service.windows)

    return read_blob


def _found(store: FileStore, blob: Digest) -> tuple[Path | bytes, int]:
    """Its file and size; of a blob that has none, its bytes: whoever reads makes no file."""
    with store.open(blob) as stream:
        if isinstance(stream, io.BytesIO):
            content = stream.getvalue()
            return content, len(content)
    path = store.path(blob)
    return path, path.stat().st_size


def _beginning(uploading: Uploading) -> list[BaseRouteHandler]:
    @post(
        "/blobs/uploads",
        opt=UPLOAD | SEND | WHILE_FULL,
        status_code=202,
        operation_class=Sent,
        request_max_body_size=None,
        summary="Begin an upload",
        responses=answers(
            "integrity",
            body=True,
            success={
                201: nothing("The blob is there, now or already.", _BLOB_HEADERS),
                202: nothing(
                    "Go on at Location: PATCH pieces in their order, then PUT with the digest.", _UPLOAD_HEADERS
                ),
            },
        ),
    )
    async def begin_upload(
        request: Request[Any, Any, Any], digest: Finished = None, mount: Mounted = None
    ) -> ASGIResponse:
        """Begin to send a blob in pieces, or send it in this one request, with `digest`."""
        if mount is not None and await uploading.has(_parse_digest(mount)):
            return _created(_parse_digest(mount))
        if digest is None:
            return _under_way(await uploading.begin(), 0)
        return _created(await uploading.take(request, _parse_digest(digest)))

    return [begin_upload, *_going_on(uploading)]


def _going_on(uploading: Uploading) -> list[BaseRouteHandler]:
    @patch(
        "/blobs/uploads/{upload:str}",
        opt=UPLOAD | SEND | WHILE_FULL,
        status_code=202,
        operation_class=Sent,
        request_max_body_size=None,
        summary="Send a piece",
        responses=answers(
            "unknown-name",
            "refused",
            "range-not-satisfiable",
            body=True,
            success={202: nothing("It is kept; Range says how far the upload came.", _UPLOAD_HEADERS)},
        ),
    )
    async def append_to_upload(
        upload: UploadIn, request: Request[Any, Any, Any], place: PlaceIn = None
    ) -> ASGIResponse:
        """Append the body. Content-Range, `START-END`, says where it belongs; the upload must end there."""
        return _under_way(upload, await uploading.append(request, upload, place))

    @put(
        "/blobs/uploads/{upload:str}",
        opt=UPLOAD | SEND | WHILE_FULL,
        status_code=201,
        operation_class=Sent,
        request_max_body_size=None,
        summary="Finish an upload",
        responses=answers(
            "unknown-name",
            "refused",
            "range-not-satisfiable",
            "integrity",
            body=True,
            success={201: nothing("The blob is there.", _BLOB_HEADERS)},
        ),
    )
    async def finish_upload(
        upload: UploadIn, digest: DigestIn, request: Request[Any, Any, Any], place: PlaceIn = None
    ) -> ASGIResponse:
        """Append the body, if there is one, and make all that came the blob of that digest, if it is.

        If it is not, the upload is given up, and nothing becomes visible.
        """
        return _created(await uploading.append_last(request, upload, _parse_digest(digest), place))

    return [append_to_upload, finish_upload, *_under_control(uploading)]


def _under_control(uploading: Uploading) -> list[BaseRouteHandler]:
    """What is done about an upload without sending any of it."""

    @get(
        "/blobs/uploads/{upload:str}",
        opt=UPLOAD,
        status_code=204,
        summary="See how far an upload came",
        responses=answers("unknown-name", success={204: nothing("Range says how far.", _UPLOAD_HEADERS)}),
    )
    async def read_upload(upload: UploadIn) -> Response[None]:
        """What is on the server's disk: `0-0` is one byte, and an upload without any has no Range."""
        return Response(None, headers=_progress(upload, await uploading.offset(upload)))

    @delete(
        "/blobs/uploads/{upload:str}",
        opt=UPLOAD,
        summary="Give up an upload",
        responses=answers("unknown-name", "refused", success={204: nothing("It is gone.")}),
    )
    async def cancel_upload(upload: UploadIn) -> None:
        """Forget what came."""
        await uploading.give_up(upload)

    return [read_upload, cancel_upload]


def _parse_digest(text: str) -> Digest:
    """Parse the digest of a request.

    Raises:
        MalformedUploadError: it is malformed.
    """
    try:
        return parse_digest(text)
    except InvalidInputError as error:
        raise MalformedUploadError(error.what, where=error.where, next_step=error.next_step) from error


def _bytes(description: str) -> ResponseSpec:
    return content(bytes, description, "the bytes", _BYTES)


def _created(digest: Digest) -> ASGIResponse:
    headers = {"location": f"/v1/blobs/{digest}", "docker-content-digest": digest}
    return ASGIResponse(media_type=_BYTES, status_code=201, headers=headers)


def _under_way(upload: str, size: int) -> ASGIResponse:
    return ASGIResponse(media_type=_BYTES, status_code=202, headers=_progress(upload, size))


def _progress(upload: str, size: int) -> dict[str, str]:
    location = f"/v1/blobs/uploads/{upload}"
    headers = {"location": location, "docker-upload-uuid": upload, "cache-control": "no-store"}
    return headers | _stored(size)


def _stored(size: int) -> dict[str, str]:
    """Return the header that says how far an upload came; an empty one has none, since `0-0` is one byte."""
    return {"range": f"0-{size - 1}"} if size else {}


def _out_of_place(request: Request[Any, Any, Any], error: OutOfPlaceError) -> Response[bytes]:
    answer = on_error(request, error)
    answer.headers.update({"location": request.scope["path"]} | _stored(error.offset))
    return answer


def _not_in_content(request: Request[Any, Any, Any], error: NotInContentError) -> Response[bytes]:
    answer = on_error(request, error)
    answer.headers["content-range"] = f"bytes */{error.size}"
    return answer
