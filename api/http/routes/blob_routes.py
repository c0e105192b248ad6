"""Routes for blobs by digest: download, and upload by the OCI distribution protocol."""

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

from litestar import Controller, HttpMethod, Request, Response, delete, get, patch, post, put, route
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import OpenAPIMediaType, Operation, RequestBody, Schema
from litestar.params import HeaderParameter, Parameter
from litestar.response.base import ASGIResponse

from benchlock.api.http.blob_transfer import (
    BlobResponse,
    CallerUploads,
    MalformedUploadError,
    NotInContentError,
    parse_range,
)
from benchlock.api.http.openapi import describe_body, describe_empty_body, describe_responses, encode_example
from benchlock.api.http.request_authorization import READ, UPLOAD
from benchlock.api.http.request_limits import READ_BLOB, SEND, WHILE_FULL
from benchlock.api.http.request_parsing import Injected, JsonRequest
from benchlock.api.http.responses import CACHE_FOREVER, matches_etag, on_error
from benchlock.api.http.service_state import Service
from benchlock.artifacts.blob_store import FileStore, SigningStore
from benchlock.artifacts.digest import Digest, digest_bytes, parse_digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.size_limits import WORD
from benchlock.artifacts.uploads.resumable_uploads import UploadOffsetError

_BYTES: Final = "application/octet-stream"
_SIGNED_SECONDS: Final = 300
"""Seconds within which a client that is sent to the bucket must begin a download."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_EXAMPLE: Final = digest_bytes(b"")

_BLOB_HEADERS: Final = {"Location": "The path of the blob.", "Docker-Content-Digest": "The digest of the blob."}
_SIGNED_HEADERS: Final = {"Location": "A URL of the bucket of the registry."}
_UPLOAD_HEADERS: Final = {
    "Location": "The path of the upload.",
    "Range": "The stored bytes of the upload, as `0-END`; absent if there are none.",
    "Docker-Upload-UUID": "The id of the upload.",
}

_DIGEST: Final = {"pattern": "^sha256:[0-9a-f]{64}$"}
"""For the OpenAPI document only: the package's own parser rejects digests, with a better message."""

DigestIn = Annotated[
    str,
    Parameter(description="The digest of the whole blob.", examples=[encode_example(_EXAMPLE)], schema_extra=_DIGEST),
]
UploadIn = Annotated[
    str,
    Parameter(
        description="The id of an upload, from its Location.",
        examples=[encode_example("0" * 32)],
        schema_extra={"pattern": "^[0-9a-f]{32}$"},
    ),
]
RangeIn = Annotated[
    str | None,
    HeaderParameter(name="Range", description="One range of bytes.", examples=[encode_example("bytes=0-99")]),
]
NameIn = Annotated[
    str,
    Parameter(
        description="The name of the downloaded file; all but letters, digits, `.`, `_` and `-` becomes `_`.",
        required=False,
        examples=[encode_example("predictions.safetensors")],
        max_length=WORD,
    ),
]
KnownIn = Annotated[str | None, HeaderParameter(name="If-None-Match", description="The ETag of the client's copy.")]
SameIn = Annotated[
    str | None, HeaderParameter(name="If-Range", description="The ETag of the blob of which the client has a part.")
]
PlaceIn = Annotated[
    str | None,
    HeaderParameter(
        name="Content-Range", description="The position of the body in the blob.", examples=[encode_example("0-99")]
    ),
]
Finished = Annotated[
    str | None,
    Parameter(description="The digest of the body, which is the whole blob.", required=False, schema_extra=_DIGEST),
]
Mounted = Annotated[
    str | None,
    Parameter(description="A digest: if that blob exists, no upload is started.", required=False, schema_extra=_DIGEST),
]


@dataclass
class BinaryBodyOperation(Operation):
    """An OpenAPI operation with a binary body, which its handler reads as a stream."""

    def __post_init__(self) -> None:
        """Set the binary body."""
        media_type = OpenAPIMediaType(schema=Schema(examples=["bytes"]))
        self.request_body = RequestBody(content={_BYTES: media_type}, description="Bytes of the blob.")


def _find_blob(store: FileStore, blob: Digest) -> tuple[Path | bytes, int]:
    """Return the file and size of a blob; of a blob without a file, its bytes."""
    with store.open(blob) as stream:
        if isinstance(stream, io.BytesIO):
            content = stream.getvalue()
            return content, len(content)
    path = store.path(blob)
    return path, path.stat().st_size


def _sign_url(store: FileStore, blob: Digest) -> str | None:
    """Return a URL for a download from the bucket; None if the service has to send the blob itself."""
    return store.sign_url(store.stat(blob), _SIGNED_SECONDS) if isinstance(store, SigningStore) else None


def _describe_attachment(name: str) -> str:
    """Return the Content-Disposition of a download under a name, whose other characters are replaced."""
    safe = _UNSAFE.sub("_", name).lstrip(".")
    return f'attachment; filename="{safe}"' if safe else "attachment"


def _parse_digest(text: str) -> Digest:
    """Parse the digest in a request.

    Raises:
        MalformedUploadError: It is malformed.
    """
    try:
        return parse_digest(text)
    except InvalidInputError as error:
        raise MalformedUploadError(error.what, where=error.where, next_step=error.next_step) from error


def _bytes(description: str) -> ResponseSpec:
    return describe_body(bytes, description, "the bytes", _BYTES)


def _created_response(digest: Digest) -> ASGIResponse:
    headers = {"location": f"/v1/blobs/{digest}", "docker-content-digest": digest}
    return ASGIResponse(media_type=_BYTES, status_code=201, headers=headers)


def _progress_response(upload: str, size: int) -> ASGIResponse:
    return ASGIResponse(media_type=_BYTES, status_code=202, headers=_progress_headers(upload, size))


def _progress_headers(upload: str, size: int) -> dict[str, str]:
    location = f"/v1/blobs/uploads/{upload}"
    headers = {"location": location, "docker-upload-uuid": upload, "cache-control": "no-store"}
    return headers | _range_header(size)


def _range_header(size: int) -> dict[str, str]:
    """Return the header with the received range; an empty upload has none, since `0-0` is one byte."""
    return {"range": f"0-{size - 1}"} if size else {}


def _wrong_offset_response(request: Request[Any, Any, Any], error: UploadOffsetError) -> Response[bytes]:
    answer = on_error(request, error)
    answer.headers.update({"location": request.scope["path"]} | _range_header(error.offset))
    return answer


def _range_error_response(request: Request[Any, Any, Any], error: NotInContentError) -> Response[bytes]:
    answer = on_error(request, error)
    answer.headers["content-range"] = f"bytes */{error.size}"
    return answer


_ERROR_HANDLERS: Final = {UploadOffsetError: _wrong_offset_response, NotInContentError: _range_error_response}


class BlobController(Controller):
    """Routes ``/v1/blobs``."""

    tags = ("blobs",)
    exception_handlers = _ERROR_HANDLERS  # type: ignore[assignment] # each takes the errors of its key

    @route(
        "/blobs/{digest:str}",
        http_method=[HttpMethod.GET, HttpMethod.HEAD],
        opt=READ | READ_BLOB,
        summary="Read a blob",
        responses=describe_responses(
            "unknown-name",
            "invalid-input",
            "range-not-satisfiable",
            success={
                200: _bytes("The blob."),
                206: _bytes("The requested range of the blob."),
                307: describe_empty_body("The blob is at Location, for some minutes.", _SIGNED_HEADERS),
                304: describe_empty_body("Unchanged since the ETag in If-None-Match."),
            },
        ),
    )
    async def read_blob(
        self,
        service: Injected[Service],
        digest: DigestIn,
        request: JsonRequest,
        part: RangeIn = None,
        known: KnownIn = None,
        same: SameIn = None,
        name: NameIn = "",
    ) -> ASGIResponse:
        """Read a blob, or one range of its bytes.

        Blobs never change, so clients may cache them without revalidation. Access depends on the caller, so shared
        caches must not store them.
        """
        work, store, blob = service.work, service.registry.store, _parse_digest(digest)
        headers = {
            "etag": f'"{blob}"',
            "cache-control": CACHE_FOREVER,
            "accept-ranges": "bytes",
            "content-disposition": _describe_attachment(name),  # foreign bytes are never a page of this service
            "docker-content-digest": blob,
        }
        if matches_etag(blob, known):
            await work.do(store.stat, blob)
            return ASGIResponse(status_code=304, headers=headers)
        if request.method == HttpMethod.HEAD:
            headers["content-length"] = str((await work.do(store.stat, blob)).size)
            headers["content-type"] = _BYTES  # Litestar omits it from responses without a body
            return ASGIResponse(headers=headers, is_head_response=True)
        is_direct = service.settings.direct_downloads and not name  # the bucket would give the file another name
        if is_direct and (url := await work.do(_sign_url, store, blob)) is not None:
            return ASGIResponse(status_code=307, headers=headers | {"location": url, "cache-control": "no-store"})
        source, size = await work.do(_find_blob, store, blob)
        header = part if same in (None, headers["etag"]) else None
        return BlobResponse(source, size, parse_range(header, size), headers, work=service.send, memory=service.windows)

    @post(
        "/blobs/uploads",
        opt=UPLOAD | SEND | WHILE_FULL,
        status_code=202,
        operation_class=BinaryBodyOperation,
        request_max_body_size=None,
        summary="Start an upload",
        responses=describe_responses(
            "integrity",
            body=True,
            success={
                201: describe_empty_body("The blob is stored.", _BLOB_HEADERS),
                202: describe_empty_body(
                    "Continue at Location: PATCH chunks in order, then PUT with the digest.", _UPLOAD_HEADERS
                ),
            },
        ),
    )
    async def begin_upload(
        self, service: Injected[Service], request: JsonRequest, digest: Finished = None, mount: Mounted = None
    ) -> ASGIResponse:
        """Start an upload in parts, or upload a blob in this one request, with `digest`."""
        if mount is not None and await CallerUploads(service).has(_parse_digest(mount)):
            return _created_response(_parse_digest(mount))
        if digest is None:
            return _progress_response(await CallerUploads(service).begin(), 0)
        return _created_response(await CallerUploads(service).take(request, _parse_digest(digest)))

    @patch(
        "/blobs/uploads/{upload:str}",
        opt=UPLOAD | SEND | WHILE_FULL,
        status_code=202,
        operation_class=BinaryBodyOperation,
        request_max_body_size=None,
        summary="Upload a chunk",
        responses=describe_responses(
            "unknown-name",
            "refused",
            "range-not-satisfiable",
            body=True,
            success={202: describe_empty_body("The chunk is stored; Range is the uploaded part.", _UPLOAD_HEADERS)},
        ),
    )
    async def append_to_upload(
        self, service: Injected[Service], upload: UploadIn, request: JsonRequest, place: PlaceIn = None
    ) -> ASGIResponse:
        """Append the body to an upload. Content-Range, `START-END`, must start at the end of the upload."""
        return _progress_response(upload, await CallerUploads(service).append(request, upload, place))

    @put(
        "/blobs/uploads/{upload:str}",
        opt=UPLOAD | SEND | WHILE_FULL,
        status_code=201,
        operation_class=BinaryBodyOperation,
        request_max_body_size=None,
        summary="Finish an upload",
        responses=describe_responses(
            "unknown-name",
            "refused",
            "range-not-satisfiable",
            "integrity",
            body=True,
            success={201: describe_empty_body("The blob is stored.", _BLOB_HEADERS)},
        ),
    )
    async def finish_upload(
        self,
        service: Injected[Service],
        upload: UploadIn,
        digest: DigestIn,
        request: JsonRequest,
        place: PlaceIn = None,
    ) -> ASGIResponse:
        """Append the body, if there is one, and store the upload as the blob with that digest.

        If the digest differs, the upload is cancelled and no blob is stored.
        """
        return _created_response(
            await CallerUploads(service).append_last(request, upload, _parse_digest(digest), place)
        )

    @get(
        "/blobs/uploads/{upload:str}",
        opt=UPLOAD,
        status_code=204,
        summary="Read the state of an upload",
        responses=describe_responses(
            "unknown-name", success={204: describe_empty_body("Range is the uploaded part.", _UPLOAD_HEADERS)}
        ),
    )
    async def read_upload(self, service: Injected[Service], upload: UploadIn) -> Response[None]:
        """Read how many bytes are stored: Range `0-0` is one byte, and an empty upload has no Range."""
        return Response(None, headers=_progress_headers(upload, await CallerUploads(service).offset(upload)))

    @delete(
        "/blobs/uploads/{upload:str}",
        opt=UPLOAD,
        summary="Cancel an upload",
        responses=describe_responses(
            "unknown-name", "refused", success={204: describe_empty_body("The upload is deleted.")}
        ),
    )
    async def cancel_upload(self, service: Injected[Service], upload: UploadIn) -> None:
        """Cancel an upload and delete its bytes."""
        await CallerUploads(service).give_up(upload)
