"""Predictors: one module per framework, found by its name.

A module has a function ``load(folder, model, place) -> Predictor``, and only this module imports its framework.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from numpy.typing import NDArray

from ..core.failures import Failure, classify_errors
from ..core.job import Model

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Place:
    """The resources of a model: ``threads`` on ``device``.

    ``shared`` means that other threads prepare samples on the same CPUs, so that idle threads of the framework should
    sleep instead of spinning.
    """

    threads: int
    device: str
    shared: bool = False


class Predictor(Protocol):
    """A model loaded by one framework."""

    @property
    def in_caller(self) -> bool:
        """Whether with one thread the calling thread does all the work, so that its counters cover it."""

    @property
    def threads(self) -> Mapping[str, int]:
        """The thread counts that were set, by the framework's names."""

    @property
    def device(self) -> str:
        """The device on which the model was found to run, so that CPU timings are never reported for an accelerator."""

    def predict(self, batch: Tensors) -> Tensors:
        """Return the outputs of ``batch``; both are arrays by the names in the manifest.

        No later call changes the returned arrays.
        """
        ...

    def close(self) -> None:
        """Release the model."""


def load(model: Model, folder: Path, place: Place) -> Predictor:
    """Load the model from ``folder``, ready to predict in ``place``.

    Raises:
        Failure: ``load``, with the framework's reason, or because the model runs on another device; ``out-of-memory``.
    """
    where = f"model, predictor {model.predictor}, format {model.format}"
    with classify_errors("load", where):
        module = import_module(f".{model.predictor}", __name__)
        predictor = cast(Predictor, module.load(folder, model, place))
    if predictor.device != place.device:
        raise Failure("load", f"{where}: it runs on device {predictor.device}, but {place.device} was requested")
    return predictor


def import_framework(model: Model) -> None:
    """Import the framework of the model, so that its import can be timed apart from ``load``.

    Raises:
        Failure: ``load``: the import fails.
    """
    with classify_errors("load", f"predictor {model.predictor}"):
        import_module(f".{model.predictor}", __name__)


def find_graph(folder: Path, model: Model) -> Path:
    """Return the only file or folder of role ``graph`` of the model.

    Raises:
        Failure: ``load``: there is none, or several.
    """
    paths = list_files(folder, model, "graph")
    if len(paths) != 1:
        raise Failure("load", f"model: {len(paths)} files with role graph, expected one")
    return paths[0]


def list_files(folder: Path, model: Model, role: str) -> list[Path]:
    """Return the model's files or folders of a role, in the manifest's order."""
    return [folder / file.path for file in model.files if file.role == role]


def merge_weights(paths: Iterable[Path], load_file: Callable[[str], Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the tensors of several safetensors files.

    Args:
        paths: The files.
        load_file: The function of the safetensors library that reads a file.

    Raises:
        ValueError: Two files have a tensor of the same name.
    """
    merged: dict[str, Any] = {}
    for path in paths:
        tensors = load_file(str(path))
        for name in tensors:
            if name in merged:
                raise ValueError(f"tensor {name!r} is in {path.name} and in another file")
        merged |= tensors
    return merged


def check_names(kind: str, declared: Iterable[str], present: Iterable[str], *, all_fed: bool = False) -> None:
    """Check the names of inputs or outputs.

    Args:
        kind: ``input`` or ``output``, for messages.
        declared: The names in the manifest.
        present: The names in the graph.
        all_fed: Whether the manifest must declare every name of the graph.

    Raises:
        ValueError: The graph lacks a declared name, or has a name that the manifest must declare.
    """
    declared, present = list(declared), list(present)
    for name in declared:
        if name not in present:
            raise ValueError(f"the graph has no {kind} {name!r}; it has {', '.join(present) or 'none'}")
    for name in present if all_fed else ():
        if name not in declared:
            raise ValueError(f"the graph has {kind} {name!r}, which the manifest does not list")


def map_by_position(model: Model, values: object) -> Tensors:
    """Return unnamed outputs of a framework by name, in the manifest's order; a tensor, sequence or mapping."""
    if len(model.outputs) == 1 and hasattr(values, "numpy"):  # the most common answer, on the fastest path
        return {model.outputs[0].name: cast(Any, values).numpy()}
    listed = list(values.values()) if isinstance(values, Mapping) else values
    results = listed if isinstance(listed, list | tuple) else [listed]
    names = [port.name for port in model.outputs]
    if len(results) != len(names):
        raise ValueError(f"the model returns {len(results)} tensors, but the manifest lists {len(names)}")
    for number, value in enumerate(results):
        if not hasattr(value, "numpy"):
            raise ValueError(f"the model returns {type(value).__name__} at position {number}, which is not a tensor")
    return {name: cast(Any, tensor).numpy() for name, tensor in zip(names, results, strict=True)}


CPU = "cpu"
_CUDA = "cuda"


def check_cuda(device: str, built_for: str | None, count: int) -> None:
    """Raise unless the framework can use ``device``.

    Args:
        device: The requested device, such as ``cuda12``.
        built_for: The CUDA version that the framework was built for; None for a build for CPUs only.
        count: The number of accelerators that the framework sees.

    Raises:
        ValueError: The framework cannot use the device; the message has the reason.
    """
    if not device.startswith(_CUDA):
        raise ValueError(f"device {device!r} is not supported")
    if not built_for:
        raise ValueError(f"{device} was requested, but this framework is built only for CPUs")
    if built_for.partition(".")[0] != device.removeprefix(_CUDA):
        raise ValueError(f"{device} was requested, but this framework is built for CUDA {built_for}")
    if not count:
        raise ValueError(f"{device} was requested, but this framework (CUDA {built_for}) detects no GPU")
