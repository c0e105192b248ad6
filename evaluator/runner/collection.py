"""What a container printed as its output folder, written to a folder of the host within the quota.

``container_init.py`` prints it, as a process of the container: nothing of it is trusted.
"""

import logging
import threading
from collections.abc import Callable, Collection
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Annotated, BinaryIO, Final, Self

import msgspec
from msgspec import Meta, Struct

from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.runner import container_init
from benchlock.evaluator.runner.engine import Container
from benchlock.evaluator.runner.output import Output
from benchlock.evaluator.runner.quota import Quota
from benchlock.evaluator.runner.results import FILES
from benchlock.evaluator.runner.trial import GOLDEN
from benchlock.registry.quantities import spell_bytes

COLLECTED: Final = (*FILES.values(), GOLDEN)
"""The files that are read of the output folder."""

_LONGEST_HEADER: Final = 1 << 16
_log = logging.getLogger("benchlock")
_Count = Annotated[int, Meta(ge=0)]


class _Header(Struct, frozen=True):
    entries: _Count = 0
    bytes: _Count = 0
    files: dict[str, _Count] = {}
    error: str | None = None


def init_arguments(folder: str) -> tuple[str, ...]:
    """Return the arguments of an interpreter that runs ``container_init.py``; those of the harness follow."""
    source = files("benchlock.evaluator.runner").joinpath("container_init.py").read_text(encoding="utf-8")
    return ("-I", "-S", "-B", "-c", source, folder, msgspec.json.encode(COLLECTED).decode())


class OutputCollector:
    """Separates what a container prints from the files that its first process appends, and keeps these in a folder.

    The last header counts: the first process prints it after it has killed all others.

    Attributes:
        excess: By what the output is beyond the quota; nothing of it is kept then.
        fault: Why the host's folder could not be written.
    """

    def __init__(self, folder: Path, quota: Quota, log: Output, names: Collection[str] = COLLECTED) -> None:
        self.excess: str | None = None
        self.fault: OSError | None = None
        self.settled = threading.Event()
        self._folder = folder
        self._quota = quota
        self._log = log
        self._names = frozenset(names)
        self._take: Callable[[bytes], bytes] = self._take_text
        self._rest = b""
        self._made: list[Path] = []
        self._missing: list[tuple[Path, int]] = []
        self._left = 0
        self._stream: BinaryIO | None = None

    def feed(self, output: bytes, error: bytes) -> None:
        """Take a piece of standard output and of standard error."""
        if error:
            self._log.feed(b"", error)
        while output:
            output = self._take(output)

    def close(self) -> None:
        """Give the log what is left; remove the files where one of them is incomplete."""
        if self._take == self._take_text:
            self._log.feed(self._rest, b"")
        else:
            self._discard()
        self._rest = b""

    def _take_text(self, piece: bytes) -> bytes:
        text, found, rest = (self._rest + piece).partition(container_init.MARK)
        self._rest = b""
        if found:
            self._take = self._take_header
        else:
            # A part of the mark may be at the end. Nothing else is kept back: lines show the progress as they come.
            start = text.rfind(container_init.MARK[:1])
            if start >= 0 and container_init.MARK.startswith(text[start:]):
                text, self._rest = text[:start], text[start:]
        self._log.feed(text, b"")
        return rest

    def _take_header(self, piece: bytes) -> bytes:
        line, found, rest = (self._rest + piece).partition(b"\n")
        self._rest = b""
        if found:
            self._begin(line)
        elif len(line) > _LONGEST_HEADER:
            self._take = self._take_text
        else:
            self._rest = line
        return rest

    def _begin(self, line: bytes) -> None:
        """Begin with the files that a header names; a malformed one names none."""
        self._discard()
        self.excess = None
        self._take = self._take_text
        try:
            header = msgspec.json.decode(line, type=_Header)
        except msgspec.MsgspecError:
            return
        if header.error is not None:
            self.excess = f"a folder that cannot be read ({header.error})"
        elif header.entries > self._quota.entries:
            self.excess = f"more than {self._quota.entries} files"
        elif max(header.bytes, sum(header.files.values())) > self._quota.size:
            self.excess = f"more than {spell_bytes(self._quota.size)}"
        elif self._names.issuperset(header.files):
            self._missing = [(self._folder / name, size) for name, size in reversed(header.files.items())]
            self._take = self._take_content
            self._begin_file()
        if self.excess is not None:
            self._take = _drop
            self.settled.set()

    def _take_content(self, piece: bytes) -> bytes:
        content, rest = piece[: self._left], piece[self._left :]
        self._left -= len(content)
        if self._stream is not None and self.fault is None:
            try:
                self._stream.write(content)
            except OSError as error:
                self.fault = error
        if not self._left:
            self._end_file()
            self._begin_file()
        return rest

    def _begin_file(self) -> None:
        """Create the next file that has content and the empty ones before it; settle where there are no more."""
        while self._missing:
            path, self._left = self._missing.pop()
            try:
                path.parent.mkdir(exist_ok=True)
                self._made.append(path)
                self._stream = path.open("xb")
            except OSError as error:
                self.fault = self.fault or error
            if self._left:
                return
            self._end_file()
        self._take = self._take_text
        self.settled.set()

    def _end_file(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            try:
                stream.close()
            except OSError as error:  # the disk is full: what was buffered is written here
                self.fault = self.fault or error

    def _discard(self) -> None:
        self._end_file()
        for path in self._made:
            path.unlink(missing_ok=True)
        self._made, self._missing = [], []


def _drop(_piece: bytes) -> bytes:
    return b""


class Settlement:
    """Waits, while a container runs, until its output is collected; then reads its CPU time and lets it end.

    Attributes:
        cpu: Seconds of CPU that the container took until then, by the engine; None where the engine does not say.
    """

    @property
    def excess(self) -> str | None:
        return self._collector.excess

    def __init__(self, container: Container, collector: OutputCollector) -> None:
        self.cpu: float | None = None
        self._container = container
        self._collector = collector
        self._ended = False
        self._thread = threading.Thread(target=self._settle, daemon=True, name="container-settle")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        self._collector.settled.set()
        self._thread.join()

    def _settle(self) -> None:
        while True:
            self._collector.settled.wait()
            self._collector.settled.clear()
            if self._ended:
                return
            try:
                if self._collector.excess is not None:
                    self._container.kill()
                    return
                try:
                    self.cpu = self._container.cpu_seconds()
                finally:
                    self._container.terminate()
            except UnavailableError:  # it ended meanwhile, or ends by itself within a minute
                _log.debug("a container cannot be settled", exc_info=True)
