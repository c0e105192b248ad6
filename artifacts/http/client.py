"""The client of a registry's blobs on a server."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.artifacts.http.server import VERSION, Server
from benchlock.artifacts.transfer.blobs import BlobClient
from benchlock.artifacts.transfer.notes import Notes
from benchlock.artifacts.transfer.session import Advice, Session
from benchlock.artifacts.transfer.uploads import PIECE

ADVICE: Final = Advice(
    "hand in a token that may do this: whoever runs the server makes one with `benchlock token create`",
    "have who runs the server publish the file again with `--registry DIR`, in the folder that it serves, which "
    "repairs it: publishing over HTTP sends nothing that the server has already, damaged or not",
    {
        **dict.fromkeys((401, 403, 413, 422), InvalidInputError),  # as `api/faults.py` answers them
        409: RefusedError,
    },
    root=f"/{VERSION}",
)


def session_with(server: Server, token: str | None = None, renew: Callable[[], str] | None = None) -> Session:
    """Open a session that sends a token to the server, and to no other.

    Args:
        server: The server.
        token: The token to send, if any.
        renew: Reads the token again when the server refuses the one that was sent.
    """

    def authorize(_client: object, _challenge: str) -> str:
        assert renew is not None
        return f"Bearer {renew()}"

    authorization = f"Bearer {token}" if token else None
    return Session(server, ADVICE, authorization=authorization, authorize=authorize if renew else None)


def connect(session: Session, notes: Path | None = None, *, piece: int = PIECE) -> BlobClient:
    """The blobs of a session's server. In the folder ``notes`` it is kept what a killed process began to upload."""
    return BlobClient(session, piece=piece, notes=Notes(notes) if notes else None, mounts=True)
