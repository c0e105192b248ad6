"""Predictors: one module per framework, found by its name.

A module has ``load(folder, model, place) -> Predictor``, and is the only one that imports its framework.
"""

from collections.abc import Iterable, Mapping
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
    """What a model may use: ``threads`` on ``device``.

    ``shared`` says that other threads prepare samples on the same processors while it predicts, so that a framework's
    idle threads should sleep and not spin.
    """

    threads: int
    device: str
    shared: bool = False


class Predictor(Protocol):
    """Drives one framework. ``threads`` is what it was set to, by the framework's own names.

    ``device`` is where the model runs, as found, not as asked: no figure of a CPU is called one of an accelerator.
    ``in_caller`` says that with one thread all work is done by the calling thread, so that this thread's clock and
    counters tell of nothing else.
    """

    @property
    def in_caller(self) -> bool: ...

    @property
    def threads(self) -> Mapping[str, int]: ...

    @property
    def device(self) -> str: ...

    def predict(self, batch: Tensors) -> Tensors:
        """The outputs, by their names in the manifest, of inputs by theirs; arrays that no later call changes."""
        ...

    def close(self) -> None: ...


def load(model: Model, folder: Path, place: Place) -> Predictor:
    """The model, ready to predict in ``place``; its files are in ``folder``.

    Raises:
        Failure: ``load``, with the framework's reason, or since it runs on another device; ``out-of-memory``.
    """
    where = f"model, predictor {model.predictor}, format {model.format}"
    with classify_errors("load", where):
        module = import_module(f".{model.predictor}", __name__)
        predictor = cast(Predictor, module.load(folder, model, place))
    if predictor.device != place.device:
        raise Failure("load", f"{where}: it runs on the device {predictor.device}, and {place.device} was asked for")
    return predictor


def import_framework(model: Model) -> None:
    """What ``load`` would import, before it: so that either can be timed apart. ``Failure`` (``load``)."""
    with classify_errors("load", f"predictor {model.predictor}"):
        import_module(f".{model.predictor}", __name__)


def find_graph(folder: Path, model: Model) -> Path:
    """The model's file, or tree, of role ``graph``; there must be exactly one."""
    paths = list_files(folder, model, "graph")
    if len(paths) != 1:
        raise Failure("load", f"model: {len(paths)} files of role graph, one is needed")
    return paths[0]


def list_files(folder: Path, model: Model, role: str) -> list[Path]:
    """The model's files, or trees, of a role, in the manifest's order."""
    return [folder / file.path for file in model.files if file.role == role]


def check_names(kind: str, declared: Iterable[str], present: Iterable[str], *, all_fed: bool = False) -> None:
    """Raises ``ValueError`` if the graph lacks an input or output, or, ``all_fed``, has another that nothing feeds."""
    declared, present = list(declared), list(present)
    for name in declared:
        if name not in present:
            raise ValueError(f"the graph has no {kind} {name!r}; it has {', '.join(present) or 'none'}")
    for name in present if all_fed else ():
        if name not in declared:
            raise ValueError(f"the graph has an {kind} {name!r}, which the manifest does not feed")


def by_position(model: Model, values: object) -> Tensors:
    """Outputs of a framework that names none, a tensor, a sequence or a mapping of tensors, in the manifest's order."""
    if len(model.outputs) == 1 and hasattr(values, "numpy"):  # what most models answer with, at the least cost
        return {model.outputs[0].name: cast(Any, values).numpy()}
    listed = list(values.values()) if isinstance(values, Mapping) else values
    several = listed if isinstance(listed, list | tuple) else [listed]
    names = [port.name for port in model.outputs]
    if len(several) != len(names):
        raise ValueError(f"the model returns {len(several)} tensors, the manifest names {len(names)}")
    for number, value in enumerate(several):
        if not hasattr(value, "numpy"):
            raise ValueError(f"the model returns {type(value).__name__} at position {number}, which is no tensor")
    return {name: cast(Any, tensor).numpy() for name, tensor in zip(names, several, strict=True)}


CPU = "cpu"
_CUDA = "cuda"


def check_cuda(device: str, built_for: str | None, found: int) -> None:
    """Nothing, where ``device`` (``cuda12``) can be used.

    ``built_for`` is the version of CUDA that the framework was built for, ``None`` where it was built for CPUs alone;
    ``found`` is how many accelerators the framework sees.

    Raises:
        ValueError: it cannot; says why.
    """
    if not device.startswith(_CUDA):
        raise ValueError(f"the device {device!r} is not built")
    if not built_for:
        raise ValueError(f"{device} was asked for, and this framework is built for CPUs alone")
    if built_for.partition(".")[0] != device.removeprefix(_CUDA):
        raise ValueError(f"{device} was asked for, and this framework is built for CUDA {built_for}")
    if not found:
        raise ValueError(f"{device} was asked for, and this framework, built for CUDA {built_for}, sees no accelerator")
