"""ONNX Runtime: ONNX graphs."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import onnxruntime

from ..core.job import Model
from . import CPU, Place, Tensors, check_cuda, check_names, find_graph

_CPU, _CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


class OnnxRuntime:
    """An ONNX graph in ONNX Runtime."""

    def __init__(
        self, path: Path, model: Model, place: Place, adjust: Callable[[Any], None] = lambda _options: None
    ) -> None:
        """Load the graph at ``path`` and check its inputs and outputs; ``adjust`` changes the session's options."""
        onnxruntime.disable_telemetry_events()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = place.threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3
        self.threads = {"intra_op_num_threads": place.threads, "inter_op_num_threads": 1}
        if place.shared and place.threads > 1:
            # Measured: threads that spin between calls slow two threads that decode JPEGs by a third.
            options.add_session_config_entry("session.intra_op.allow_spinning", "0")
            self.threads |= {"intra_op_allow_spinning": 0}
        adjust(options)
        with _batch_scheduling(enabled=place.shared and hasattr(os, "SCHED_BATCH")):
            self.session = _session(path, options, place.device)
        self.device = place.device if self.session.get_providers()[0] == _CUDA else CPU
        self.in_caller = self.device == CPU
        self._outputs = [port.name for port in model.outputs]
        graph_inputs, graph_outputs = self.session.get_inputs(), self.session.get_outputs()
        check_names("input", [port.name for port in model.inputs], [port.name for port in graph_inputs], all_fed=True)
        check_names("output", self._outputs, [port.name for port in graph_outputs])

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs by name; ONNX Runtime allocates them in each call."""
        return dict(zip(self._outputs, self.session.run(self._outputs, batch), strict=True))

    def close(self) -> None:
        """Release the session."""
        del self.session


def load(folder: Path, model: Model, place: Place) -> OnnxRuntime:
    """Load the ONNX graph of the model."""
    return OnnxRuntime(find_graph(folder, model), model, place)


@contextmanager
def _batch_scheduling(*, enabled: bool) -> Iterator[None]:
    """Start threads inside the context under Linux's batch scheduling policy, where the system allows it.

    These threads preempt no other thread when they wake up. Measured: ONNX Runtime's threads wake up about 15 times per
    call, which costs threads that decode JPEGs beside them a tenth of their CPU time.
    """
    if not enabled:
        yield
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setscheduler(0, policy, parameters)


def _session(path: Path, options: Any, device: str) -> Any:  # noqa: ANN401 - ONNX Runtime has no types here
    if device == CPU:
        return onnxruntime.InferenceSession(str(path), options, providers=[_CPU])
    has_cuda = _CUDA in onnxruntime.get_available_providers()
    check_cuda(device, getattr(onnxruntime, "cuda_version", None) if has_cuda else None, has_cuda)
    # CUDA's libraries were installed as wheels, where no loader looks for them.
    onnxruntime.preload_dlls()
    # A graph that would run partly on the CPU is refused: its timings would cover both devices.
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = onnxruntime.InferenceSession(str(path), options, providers=[_CUDA])
    session.disable_fallback()
    return session
