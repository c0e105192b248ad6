"""A real server on this machine that answers as it is told: ranges, redirects, answers that break off or never end."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PIECE = 1 << 18
TLS = Path(__file__).parents[2] / "cases" / "tls"
CERTIFICATE = TLS / "localhost.pem"


@dataclass
class File:
    """What a path answers with. Each of ``breaks`` is the number of bytes after which one answer breaks off.

    ``pause`` is in seconds, after each 256 KiB.
    """

    content: bytes
    etag: str = '"one"'
    ranges: bool = True
    breaks: list[int] = field(default_factory=list)
    headers: Mapping[str, str] = field(default_factory=dict)
    pause: float = 0


@dataclass
class Asked:
    """A question that came: its path with the query, its headers, and how many bytes of a body were sent for it."""

    method: str
    path: str
    headers: Message
    sent: int = 0


Page = File | Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    """One connection; ``page`` is what answers a path."""

    protocol_version = "HTTP/1.1"
    timeout = 20
    web: "Web"
    pause = 0.0

    def do_GET(self) -> None:
        self.asked = Asked(self.command, self.path, self.headers)
        self.web.asked.append(self.asked)
        page = self.web.pages.get(self.path.partition("?")[0], self.web.otherwise)
        if isinstance(page, File):
            self.answer_file(page)
        else:
            page(self)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_GET  # noqa: N815 - the library's own names

    def reply(self, status: int, content: bytes = b"", **headers: str) -> None:
        """Send an answer of headers and content."""
        self.answer(status, content, {key.replace("_", "-"): value for key, value in headers.items()})

    def answer(self, status: int, content: bytes, headers: Mapping[str, str], length: int | None = None) -> None:
        """Send an answer; ``length`` is what it says of itself, whatever it has."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.send(content)

    def send(self, content: bytes) -> None:
        for start in range(0, len(content), PIECE):
            piece = content[start : start + PIECE]
            self.wfile.write(piece)
            self.asked.sent += len(piece)
            if self.pause:
                time.sleep(self.pause)

    def answer_file(self, file: File) -> None:
        start, status, self.pause = 0, 200, file.pause
        headers = {"ETag": file.etag} | dict(file.headers)
        asked = self.headers["Range"]
        if asked and file.ranges and self.headers["If-Range"] in (None, file.etag):
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(file.content):
                return self.reply(416, Content_Range=f"bytes */{len(file.content)}")
            status, headers["Content-Range"] = 206, f"bytes {start}-{len(file.content) - 1}/{len(file.content)}"
        content = file.content[start:]
        if file.breaks and self.command == "GET":
            self.answer(status, content[: file.breaks.pop(0)], headers, len(content))
            self.close_connection = True
            return None
        return self.answer(status, content, headers)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def redirect(location: str, status: int = 302, **headers: str) -> Callable[[Handler], None]:
    """A page that sends elsewhere."""
    return lambda handler: handler.reply(status, b"", Location=location, **headers)


def status(code: int, content: bytes = b"", **headers: str) -> Callable[[Handler], None]:
    """A page that is a status."""
    return lambda handler: handler.reply(code, content, **headers)


def in_turn(*pages: Page) -> Callable[[Handler], None]:
    """Pages that answer one question each, the last one all further ones."""
    left = list(pages)

    def answer(handler: Handler) -> None:
        page = left.pop(0) if len(left) > 1 else left[0]
        handler.answer_file(page) if isinstance(page, File) else page(handler)

    return answer


class Server(ThreadingHTTPServer):
    """Waits for its connections when it is closed: no socket outlives a test."""

    daemon_threads = False

    def __init__(self, *arguments: Any) -> None:  # noqa: ANN401 - the library's own
        super().__init__(*arguments)
        self._open: set[socket.socket] = set()
        self._turn = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the library's own
        with self._turn:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - the library's own
        with self._turn:
            self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Read nothing more, so that only answers are waited for: clients keep connections that they do not use."""
        with self._turn:
            for connection in self._open:
                with suppress(OSError):
                    # Not TLS's own, which would take the connection's state from the thread that still answers.
                    socket.socket.shutdown(connection, socket.SHUT_RD)
        super().server_close()

    def handle_error(self, *_: object) -> None:
        """Clients that break off, or refuse the certificate, are what some tests are about."""


@dataclass
class Web:
    """A server: what it answers, and what it was asked."""

    origin: str
    pages: dict[str, Page] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    otherwise: Callable[[Handler], None] = field(default_factory=lambda: status(404, b"no such file"))

    @property
    def sent(self) -> int:
        """The bytes of all bodies that were sent."""
        return sum(one.sent for one in self.asked)


@contextmanager
def serving(*, tls: bool = True, host: str = "127.0.0.1") -> Iterator[Web]:
    """A server on a free port of this machine, called localhost, with or without TLS."""

    class HandlerOfThisServer(Handler):
        pass

    server = Server((host, 0), HandlerOfThisServer)
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE, TLS / "localhost.key")
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    web = HandlerOfThisServer.web = Web(f"{'https' if tls else 'http'}://localhost:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield web
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
