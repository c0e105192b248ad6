"""A proxy on the loopback that passes bytes on, until it is told to cut, to stall or to flip a bit on its way."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Direction = Literal["up", "down"]  # to the server, or from it
_PIECE = 1 << 16
_HEARD = 8 << 20


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens once, to the first connection that comes so far: after ``at`` bytes of it in one direction.

    With ``request``, at the first bytes of such a request instead: after ``at`` others of the kind.
    """

    direction: Direction
    at: int
    flip: bool = False
    request: bytes = b""


class FaultyProxy:
    """Passes connections on to one port, or to a socket in the file system.

    ``faults`` come one after the other; ``passed`` counts bytes by direction, ``heard`` has the first
    ones to the server.
    """

    def __init__(self, target: int | Path) -> None:
        self.faults: list[Fault] = []
        self.passed: dict[Direction, int] = {"up": 0, "down": 0}
        self.heard = bytearray()
        self._target = target
        self._turn = threading.Lock()
        self._requests = 0
        self._open: set[tuple[socket.socket, socket.socket]] = set()  # the client's end and the server's
        self._flowing = threading.Event()
        self._flowing.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def cut(self) -> None:
        """End every open connection, whatever is on its way."""
        with self._turn:
            for pair in self._open:
                for end in pair:
                    _shut(end)

    def end_one_way(self, direction: Direction) -> None:
        """End one direction of every open connection; the other one goes on until something comes for the first."""
        with self._turn:
            for client, server in self._open:
                with suppress(OSError):
                    (server if direction == "up" else client).shutdown(socket.SHUT_WR)

    def stall(self) -> None:
        """Pass nothing on until ``flow``, and let connections be made all the same."""
        self._flowing.clear()

    def flow(self) -> None:
        """Pass on what was held back, and what comes."""
        self._flowing.set()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(20)
        self.flow()
        self.cut()
        for thread in self._threads[1:]:
            thread.join(20)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            try:
                server = _connected(self._target)
            except OSError:  # nobody is there: the client sees its connection end
                return
            with server:
                with self._turn:
                    self._open.add((client, server))
                up = threading.Thread(target=self._pump, args=("up", client, server), daemon=True)
                up.start()
                self._pump("down", server, client)
                up.join(20)
                with self._turn:
                    self._open.discard((client, server))

    def _pump(self, direction: Direction, source: socket.socket, sink: socket.socket) -> None:
        count = 0
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                self._flowing.wait()
                piece, cut = self._touched(direction, piece, count)
                sink.sendall(piece)
                count += len(piece)
                with self._turn:
                    self.passed[direction] += len(piece)
                    if direction == "up" and len(self.heard) < _HEARD:
                        self.heard += piece
                if cut:
                    break
        for end in (source, sink):
            _shut(end)

    def _touched(self, direction: Direction, piece: bytes, count: int) -> tuple[bytes, bool]:
        """The piece as it goes on, and whether the connection ends with it."""
        with self._turn:
            fault = self.faults[0] if self.faults else None
            if fault is None or fault.direction != direction:
                return piece, False
            if fault.request:
                if not piece.startswith(fault.request):
                    return piece, False
                self._requests += 1
                if self._requests <= fault.at:
                    return piece, False
                self._requests, place = 0, 0
            else:
                place = fault.at - count
                if place >= len(piece):
                    return piece, False
            self.faults.pop(0)
        place = max(place, 0)
        if fault.flip:
            return piece[:place] + bytes([piece[place] ^ 1]) + piece[place + 1 :], False
        return piece[:place], True


def _connected(target: int | Path) -> socket.socket:
    if isinstance(target, int):
        return socket.create_connection(("127.0.0.1", target))
    server = socket.socket(socket.AF_UNIX)
    server.connect(str(target))
    return server


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy_to(target: int | Path) -> Iterator[FaultyProxy]:
    """A proxy to a port or a socket of this machine, for as long as the context is held."""
    proxy = FaultyProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
