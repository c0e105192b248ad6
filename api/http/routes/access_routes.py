"""Routes for tokens, the audit log and the current caller."""

from typing import Annotated

import msgspec
from litestar import Controller, Response, delete, get, post
from litestar.params import Body, Parameter

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.http.openapi import describe_body, describe_responses, encode_example
from benchlock.api.http.request_authorization import ADMIN, READ
from benchlock.api.http.request_limits import LIST, WHILE_FULL
from benchlock.api.http.request_parsing import (
    Cursor,
    Injected,
    Limit,
    Prefix,
    bound_page_size,
    complete_prefix,
    fit_page,
)
from benchlock.api.http.service_state import Service
from benchlock.api.local.local_registry import now, open_log, open_tokens
from benchlock.api.schemas.access_schemas import (
    AuditLogPage,
    Caller,
    NewToken,
    RevocationResult,
    RotationRequest,
    TokenPage,
    TokenRequest,
    encode_log_entry,
    encode_token,
)
from benchlock.api.schemas.pagination_cursors import decode_cursor, encode_cursor
from benchlock.registry.auth.permissions import Scopes, get_actor
from benchlock.registry.auth.token_format import Secret, Token, TokenId
from benchlock.registry.auth.tokens import parse_grace, parse_lifetime, parse_token_id

_ID = "01m7zpsb9cmkr23pzwhqxxkrge"
_TOKEN = {
    "id": f"token/{_ID}",
    "name": "ci",
    "scopes": ["publish:acme"],
    "created_by": "embedded",
    "created_at": "2026-11-20T12:00:00Z",
    "expires_at": "2027-02-18T12:00:00Z",
    "revoked_at": None,
    "state": "valid",
    "rotated_at": None,
}
_NEW = {"token": _TOKEN, "secret": "benchlock_ and 49 letters and digits"}
_ENTRY = {
    "id": _ID,
    "at": "2026-11-20T12:00:00Z",
    "actor": f"token/{_ID}",
    "action": "version.yank",
    "target": "model/acme/resnet8@1.0.0 wrong labels",
    "request": "0f6e0c5cf41a4b86b5d1a4f2",
    "outcome": "done",
    "reason": "",
}

TokenIn = Annotated[
    TokenRequest,
    Body(description="The token to create.", examples=[encode_example({"name": "ci", "scopes": ["publish:acme"]})]),
]
RotationIn = Annotated[
    RotationRequest,
    Body(
        description="The new lifetime and the grace period.",
        examples=[encode_example({"expires": "30d", "grace": "1h"})],
    ),
]
IdIn = Annotated[
    str,
    Parameter(
        description="The id of the token, with or without `token/`.",
        examples=[encode_example(f"token/{_ID}"), encode_example(_ID)],
        max_length=64,
        schema_extra={"pattern": "^(token/)?[0-9a-z]{26}$"},
    ),
]
ActorIn = Annotated[
    str | None,
    Parameter(
        description="Only entries of this actor: a token's id, `embedded`, `open` or `anonymous`.",
        required=False,
        examples=[encode_example(f"token/{_ID}")],
        max_length=64,
    ),
]


_CALLER = {"id": "token/01kam1v3mz4w0q3d5g7h9j2k4m", "scopes": ["read", "run"]}


class AccessController(Controller):
    """Routes ``/v1/tokens``, ``/v1/log`` and ``/v1/caller``."""

    tags = ("access",)

    @post(
        "/tokens",
        opt=ADMIN,
        status_code=201,
        summary="Create a token",
        responses=describe_responses(
            body=True, success={201: describe_body(NewToken, "The token; its secret cannot be retrieved again.", _NEW)}
        ),
    )
    async def create_token(self, service: Injected[Service], data: TokenIn) -> Response[bytes]:
        """Create a token with these scopes. Only this response has its secret."""
        scopes, lifetime = Scopes.parse(data.scopes), parse_lifetime(data.expires)
        return _new(*await service.work.do(open_tokens(service.registry).create, data.name, scopes, lifetime))

    @get(
        "/tokens",
        opt=ADMIN,
        summary="List tokens",
        responses=describe_responses(
            "invalid-input", success={200: describe_body(TokenPage, "A page of tokens.", {"tokens": [_TOKEN]})}
        ),
    )
    async def list_tokens(
        self, service: Injected[Service], prefix: Prefix = None, cursor: Cursor = None, limit: Limit = None
    ) -> TokenPage:
        """List all tokens that were ever created, oldest first, without their secrets."""
        page_size = bound_page_size(limit, service.settings)
        after = None if cursor is None else decode_cursor(cursor, 1)[0]
        id_prefix = complete_prefix("token/", prefix)
        entries = await service.work.do(
            open_tokens(service.registry).list, prefix=id_prefix, after=after, limit=page_size + 1
        )
        documents = [encode_token(entry, now()) for entry in entries]
        page, more = fit_page(documents, page_size, lambda entry: encode_cursor((entry.id,)))
        return TokenPage(tokens=page, next=more)

    @post(
        "/tokens/{token:str}/rotation",
        opt=ADMIN | WHILE_FULL,
        status_code=201,
        summary="Rotate a token",
        responses=describe_responses(
            "unknown-name",
            "invalid-input",
            "refused",
            body=True,
            success={
                201: describe_body(NewToken, "The token with its new secret, which cannot be retrieved again.", _NEW)
            },
        ),
    )
    async def rotate_token(self, service: Injected[Service], token: IdIn, data: RotationIn) -> Response[bytes]:
        """Give a token a new secret; the old one expires after `grace`. Id, scopes, machines, jobs and runs stay."""
        lifetime, grace = parse_lifetime(data.expires), parse_grace(data.grace)
        rotation = await service.work.do(
            open_tokens(service.registry).rotate, parse_token_id(f"token/{token}"), lifetime, grace
        )
        service.authority.forget()
        return _new(*rotation)

    @delete(
        "/tokens/{token:str}",
        opt=ADMIN,
        status_code=200,
        summary="Revoke a token",
        responses=describe_responses(
            "unknown-name",
            "invalid-input",
            success={
                200: describe_body(
                    RevocationResult,
                    "The token is revoked.",
                    {"token": f"token/{_ID}", "revoked": True, "changed": True},
                )
            },
        ),
    )
    async def revoke_token(self, service: Injected[Service], token: IdIn) -> RevocationResult:
        """Revoke a token permanently. Its queued jobs are cancelled, and the leases of its workers end.

        Other servers of this registry reject the token after at most two seconds.
        """
        id_ = parse_token_id(f"token/{token}")
        return RevocationResult(token=id_, changed=await revoke(service, id_))

    @get(
        "/log",
        opt=ADMIN | LIST,
        summary="Audit log",
        responses=describe_responses(
            "invalid-input", success={200: describe_body(AuditLogPage, "A page of entries.", {"log": [_ENTRY]})}
        ),
    )
    async def read_audit_log(
        self, service: Injected[Service], actor: ActorIn = None, cursor: Cursor = None, limit: Limit = None
    ) -> AuditLogPage:
        """List performed and refused actions, newest first, with their actors and request ids."""
        page_size = bound_page_size(limit, service.settings)
        before = None if cursor is None else decode_cursor(cursor, 1)[0]
        records = await service.lists.do(
            open_log(service.registry).list, limit=page_size + 1, before=before, actor=actor
        )
        entries, more = fit_page(
            [encode_log_entry(entry) for entry in records], page_size, lambda entry: encode_cursor((entry.id,))
        )
        return AuditLogPage(log=entries, next=more)

    @get(
        "/caller",
        opt=READ,
        summary="Get the current caller",
        responses=describe_responses(success={200: describe_body(Caller, "The caller and its scopes.", _CALLER)}),
    )
    async def read_caller(self) -> Caller:
        """Read the id and the scopes of the token that the request was sent with."""
        who = get_actor()
        return Caller(id=who.id, scopes=tuple(sorted(who.scopes.texts)))


async def revoke(service: Service, token: TokenId) -> bool:
    """Revoke a token and cancel its work; return ``False`` if it is revoked already."""
    changed = await service.work.do(open_tokens(service.registry).revoke, token)
    service.authority.forget()
    while await service.work.do(open_queue(service.registry).cancel_token_work):
        pass
    return changed


def _new(token: Token, secret: Secret) -> Response[bytes]:
    """Build the response with a new secret, which no cache may store."""
    answer = NewToken(token=encode_token(token, now()), secret=secret.text)
    headers = {"cache-control": "no-store"}
    return Response(msgspec.json.encode(answer), status_code=201, headers=headers, media_type="application/json")
