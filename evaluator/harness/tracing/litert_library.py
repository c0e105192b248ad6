"""LiteRT's C library, called by ctypes, because no Python API of LiteRT has its profiler.

The layout of an event is private to each build of the library, and one that is read wrongly corrupts memory. So a trial
in a child process comes first, the library writes into a buffer much larger than it needs, and ``decode_events`` checks
the size of the events and the values of their fields before it follows any pointer.
"""

import ctypes
import faulthandler
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.failures import describe_error
from ..predictors import Tensors
from . import Shape

LIBRARY: Final = "libLiteRt.so"
DEFAULT, OPERATOR, DELEGATE_OPERATOR, INVOKE = 1, 2, 8, 16
"""Types of events: parts of a call, an operator of LiteRT, an operator of a delegate, and a whole call."""

_PACKAGE = "ai_edge_litert"
_TYPES: Final = (DEFAULT, OPERATOR, 4, DELEGATE_OPERATOR, INVOKE, 32)
_WORDS: Final = 13
"""The 64-bit words of an event: tag, type, start and duration in µs, 3 + 3 of memory, 2 of metadata, and source."""
_MEMORY = slice(4, 10)
_MOST_MEMORY: Final = 1 << 44
"""A value that no amount of memory reaches, and every pointer exceeds."""
_MOST_SOURCES: Final = 16
_ROOM: Final = 400
"""The bytes that the library may write for an event."""
FILLER: Final = 0xA5
"""The value of the bytes that the library did not write."""
_LONGEST_TAG: Final = 200
_CPU = 1
_HOST_MEMORY = 1
_READ, _WRITE = 0, 1
_RANK: Final = 0x7F
"""The bits of the rank in the second word of a type, which the sizes of up to 8 axes follow; a dynamic one is -1."""
_DTYPES: Final = {
    1: "float32", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8", 10: "float16", 11: "float64",
}  # fmt: skip
_TRIAL_SECONDS: Final = 60.0
_keep_payload = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)


class Event(NamedTuple):
    """An event of the profiler; ``node`` is the index of the operator, ``graph`` 0 for the main graph."""

    tag: str
    type: int
    start_us: int
    elapsed_us: int
    node: int
    graph: int


def decode_events(
    buffer: NDArray[np.uint8], count: int, window_us: tuple[int, int], read_tag: Callable[[int], str]
) -> list[Event]:
    """Decode events after a check of their layout.

    Args:
        buffer: The bytes that the library wrote, in a larger buffer of ``FILLER``.
        count: The number of events.
        window_us: When the profiler was started and stopped, in microseconds of CLOCK_MONOTONIC.
        read_tag: Returns the text at an address, or raises ``ValueError``.

    Raises:
        ValueError: The events have another layout, so that none of their values can be trusted.
    """
    written = int(np.flatnonzero(buffer != FILLER)[-1]) + 1 if count else 0
    size = _WORDS * 8
    if not count * size - 8 <= written <= count * size:  # the last word may end in padding
        raise ValueError(f"{count} events of the profiler have {written} bytes, but {count * size} were expected")
    words = buffer[: count * size].view(np.uint64).reshape(count, _WORDS)
    types, memory = words[:, 1] & 0xFFFFFFFF, words[:, _MEMORY]
    starts, elapsed = words[:, 2], words[:, 3]
    timed = np.isin(types, (DEFAULT, OPERATOR, INVOKE))
    by_delegate = types == DELEGATE_OPERATOR
    begin, end = window_us
    checks = {
        "type": np.isin(types, _TYPES),
        "memory": (memory < _MOST_MEMORY).all(axis=1) & ~(by_delegate & memory.any(axis=1)),
        "start": np.where(timed, (starts >= begin) & (starts <= end), ~by_delegate | (starts == 0)),
        "duration": ~(timed | by_delegate) | (elapsed <= end - begin),
        "source": words[:, 12] & 0xFFFFFFFF < _MOST_SOURCES,
    }
    for name, correct in checks.items():
        if not correct.all():
            number = int(np.flatnonzero(~correct)[0])
            raise ValueError(f"event {number} of the profiler has an impossible {name}: its layout is another one")
    tags = {address: read_tag(address) for address in map(int, np.unique(words[:, 0]))}
    rows = words.view(np.int64).tolist()
    return [
        Event(tags[row[0]], kind, row[2], row[3], row[10], row[11])
        for row, kind in zip(rows, types.tolist(), strict=True)
    ]


def read_text(address: int) -> str:
    """Return the text at an address of this process.

    Raises:
        ValueError: The address is not in readable memory.
    """
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:  # noqa: PTH123 - no file of anyone
        for line in stream:
            region, mode = line.split(None, 2)[:2]
            begin, end = (int(part, 16) for part in region.split("-"))
            if begin <= address < end and mode.startswith("r"):
                text = ctypes.string_at(address, min(_LONGEST_TAG, end - address))
                return text.partition(b"\0")[0].decode("ascii", "replace")
    raise ValueError("an event of the profiler has an impossible tag: its layout is another one")


def find_library() -> Path:
    """Return the path of the C library in the installed package.

    Raises:
        ValueError: The package has none.
    """
    spec = find_spec(_PACKAGE)
    folders = (spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        if (path := Path(folder) / LIBRARY).is_file():
            return path
    raise ValueError(f"the package {_PACKAGE} has no {LIBRARY}, whose profiler is needed")


def digest_library() -> str:
    """Return the SHA-256 digest of the C library."""
    return hashlib.sha256(find_library().read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Buffer:
    """The memory of an input or output for calls of one shape."""

    handle: ctypes.c_void_p
    dtype: str
    shape: Shape
    size: int


class CompiledModel:
    """A graph compiled by the C library for the CPU, with its profiler.

    Attributes:
        inputs: For each input an array of its type, with the size 1 for dynamic axes.
        outputs: The names of the outputs.
    """

    def __init__(self, path: Path, threads: int, find_shapes: Callable[[Tensors], Mapping[str, Shape]]) -> None:
        """Compile the graph.

        Args:
            path: The TFLite file.
            threads: The number of threads.
            find_shapes: Returns the shapes of all outputs for the inputs of a call. The library tells them only after a
                call if the graph computes a shape, and writes past the end of a buffer that is too small.

        Raises:
            ValueError: The library lacks a function, or one of them failed.
        """
        self._library = ctypes.CDLL(str(find_library()))
        self._payloads: list[Any] = []
        self._environment = ctypes.c_void_p()
        self._call("CreateEnvironment", ctypes.c_int(0), None, ctypes.byref(self._environment))
        self._model = self._get("CreateModelFromFile", self._environment, os.fsencode(path))
        self._options = self._get("CreateOptions")
        self._call("SetOptionsHardwareAccelerators", self._options, ctypes.c_int(_CPU))
        self._add_options(b"runtime_options_string", "enable_profiling = true\n")
        self._add_options(b"xnnpack", f"num_threads = {threads}\n")
        self._compiled = self._get("CreateCompiledModel", self._environment, self._model, self._options)
        self._profiler = self._get("CompiledModelGetProfiler", self._compiled)
        signature = self._get("GetModelSignature", self._model, ctypes.c_size_t(0))
        self._types = {kind: self._list_types(kind, signature) for kind in ("Input", "Output")}
        self.inputs = {
            name: np.zeros([max(size, 1) for size in type_[2 : 2 + (type_[1] & _RANK)]], _DTYPES[type_[0]])
            for name, type_ in self._types["Input"].items()
        }
        self.outputs = list(self._types["Output"])
        self._find_shapes, self._known_shapes = find_shapes, dict[tuple[Shape, ...], Mapping[str, Shape]]()
        self._input_buffers: dict[str, _Buffer] = {}
        self._output_buffers: dict[str, _Buffer] = {}
        self._began_us = 0

    def run(self, batch: Tensors) -> Tensors:
        """Return the outputs of one call, after resizing the inputs where their shapes changed."""
        if {name: buffer.shape for name, buffer in self._input_buffers.items()} != {
            name: values.shape for name, values in batch.items()
        }:
            self._resize(batch)
        for name, values in batch.items():
            buffer = self._input_buffers[name]
            if values.dtype.name != buffer.dtype:
                raise ValueError(f"input {name!r} of the graph is {buffer.dtype}, but got {values.dtype}")
            self._copy(buffer, _WRITE, np.ascontiguousarray(values))
        self._call("RunCompiledModel", self._compiled, *self._arguments)
        answers = {name: np.empty(buffer.shape, buffer.dtype) for name, buffer in self._output_buffers.items()}
        for name, values in answers.items():
            self._copy(self._output_buffers[name], _READ, values)
        return answers

    def start(self) -> None:
        """Begin to record."""
        self._call("ResetProfiler", self._profiler)
        self._call("StartProfiler", self._profiler)
        self._began_us = time.monotonic_ns() // 1000

    def finish(self) -> list[Event]:
        """Stop, and return the events since the start.

        Raises:
            ValueError: The events have another layout than expected.
        """
        window = self._began_us, time.monotonic_ns() // 1000 + 1
        self._call("StopProfiler", self._profiler)
        count = self._get("GetNumProfilerEvents", self._profiler, kind=ctypes.c_int).value
        buffer = np.full(max(count, 1) * _ROOM, FILLER, np.uint8)
        if count:
            pointer = buffer.ctypes.data_as(ctypes.c_void_p)
            self._call("GetProfilerEvents", self._profiler, ctypes.c_int(count), pointer)
        return decode_events(buffer, count, window, read_text)

    def close(self) -> None:
        """Release the graph."""
        self._release_buffers()
        for name, handle in (
            ("CompiledModel", self._compiled),
            ("Options", self._options),
            ("Model", self._model),
            ("Environment", self._environment),
        ):
            getattr(self._library, f"LiteRtDestroy{name}")(handle)

    def _call(self, name: str, *arguments: Any) -> None:  # noqa: ANN401 - arguments of C
        try:
            function = getattr(self._library, f"LiteRt{name}")
        except AttributeError as error:
            raise ValueError(f"{LIBRARY} has no function LiteRt{name}, which the profiler needs") from error
        status = function(*arguments)
        if status:
            raise ValueError(f"LiteRt{name} failed with status {status}")

    def _get(self, name: str, *arguments: Any, kind: Any = ctypes.c_void_p) -> Any:  # noqa: ANN401 - types of C
        """Call a function whose last argument receives a result, and return the result."""
        result = kind()
        self._call(name, *arguments, ctypes.byref(result))
        return result

    def _add_options(self, name: bytes, text: str) -> None:
        payload = ctypes.create_string_buffer(text.encode())
        self._payloads.append(payload)  # the library keeps the address
        options = self._get("CreateOpaqueOptions", name, ctypes.cast(payload, ctypes.c_void_p), _keep_payload)
        self._call("AddOpaqueOptions", self._options, options)

    def _resize(self, batch: Tensors) -> None:
        """Change the shapes of the inputs, and allocate the buffers of inputs and outputs."""
        key = tuple(batch[name].shape for name in self.inputs)
        if key not in self._known_shapes:
            self._known_shapes[key] = self._find_shapes(batch)
        shapes = self._known_shapes[key]
        self._release_buffers()
        for index, shape in enumerate(key):
            number, sizes = ctypes.c_size_t(index), (ctypes.c_int * len(shape))(*shape)
            arguments = ctypes.c_size_t(0), number, sizes, ctypes.c_size_t(len(shape))
            self._call("CompiledModelResizeInputTensorNonStrict", self._compiled, *arguments)
        types = self._types["Input"].items(), self._types["Output"].items()
        self._input_buffers = {name: self._allocate(name, type_, batch[name].shape) for name, type_ in types[0]}
        self._output_buffers = {name: self._allocate(name, type_, shapes[name]) for name, type_ in types[1]}
        self._arguments = [ctypes.c_size_t(0), *_arguments(self._input_buffers), *_arguments(self._output_buffers)]

    def _release_buffers(self) -> None:
        for buffer in (*self._input_buffers.values(), *self._output_buffers.values()):
            self._library.LiteRtDestroyTensorBuffer(buffer.handle)
        self._input_buffers, self._output_buffers = {}, {}

    def _list_types(self, kind: str, signature: ctypes.c_void_p) -> dict[str, Any]:
        """Return the types of the inputs or outputs by name, in the signature's order.

        A type is the number of the element type, the rank, and the sizes, in a structure of unknown length.
        """
        types = {}
        for index in range(self._get(f"GetNumSignature{kind}s", signature, kind=ctypes.c_size_t).value):
            tensor = self._get(f"GetSignature{kind}TensorByIndex", signature, ctypes.c_size_t(index))
            name = self._get("GetTensorName", tensor, kind=ctypes.c_char_p).value.decode()
            types[name] = self._get("GetRankedTensorType", tensor, kind=ctypes.c_int32 * 256)
            if types[name][0] not in _DTYPES:
                raise ValueError(f"{kind.lower()} {name!r} has an unknown element type: {types[name][0]}")
        return types

    def _allocate(self, name: str, type_: Any, shape: Shape) -> _Buffer:  # noqa: ANN401 - a structure of C
        """Return the buffer of an input or output of ``shape``."""
        rank, dtype = type_[1] & _RANK, _DTYPES[type_[0]]
        if len(shape) != rank:
            raise ValueError(f"{name!r} has {rank} axes, but got {len(shape)}")
        type_[2 : 2 + rank] = list(shape)
        size = np.dtype(dtype).itemsize * int(np.prod(shape))
        arguments = ctypes.c_int(_HOST_MEMORY), ctypes.byref(type_), ctypes.c_size_t(size)
        handle = self._get("CreateManagedTensorBuffer", self._environment, *arguments)
        packed = self._get("GetTensorBufferPackedSize", handle, kind=ctypes.c_size_t).value
        if packed != size:
            raise ValueError(f"{name!r} has {packed} bytes, which its type and shape do not explain")
        return _Buffer(handle, dtype, tuple(shape), size)

    def _copy(self, buffer: _Buffer, mode: int, values: NDArray[Any]) -> None:
        """Copy ``values`` into a buffer, or its content into ``values``."""
        memory = ctypes.c_void_p()
        self._call("LockTensorBuffer", buffer.handle, ctypes.byref(memory), ctypes.c_int(mode))
        source, target = (values.ctypes.data, memory) if mode == _WRITE else (memory, values.ctypes.data)
        ctypes.memmove(target, source, buffer.size)
        self._call("UnlockTensorBuffer", buffer.handle)


def _arguments(buffers: Mapping[str, _Buffer]) -> tuple[Any, ...]:
    """Return the number of buffers and the array of their handles, as a call of the graph takes them."""
    handles = (ctypes.c_void_p * len(buffers))(*(buffer.handle for buffer in buffers.values()))
    return ctypes.c_size_t(len(buffers)), handles


def run_trial(work: Callable[[], None], seconds: float = _TRIAL_SECONDS) -> None:
    """Run ``work`` in a child process, which may crash without harm.

    Raises:
        ValueError: ``work`` raised an error, ended its process, or took longer than ``seconds``.
    """
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_report, args=(work, sender))
    child.start()
    sender.close()
    child.join(seconds)
    if child.exitcode is None:
        child.kill()
        child.join()
        reason = f"took longer than {seconds:g} s"
    else:
        try:
            reason = str(receiver.recv())
        except EOFError:
            reason = f"ended its process with code {child.exitcode}"
    receiver.close()
    if reason:
        raise ValueError(f"this build of LiteRT cannot be profiled: the trial of its profiler {reason}")


def _report(work: Callable[[], None], sender: Connection) -> None:
    """Run ``work`` without output, and send its error, or an empty text."""
    faulthandler.disable()  # a crash of a trial is expected
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    reason = ""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - any error of a trial is its result
        reason = f"failed: {describe_error(error)}"
    sender.send(reason)
