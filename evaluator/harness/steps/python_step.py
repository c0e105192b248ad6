"""The python step: a function loaded from a file of the model."""

import re
import sys
from collections.abc import Callable
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

import numpy as np

from .step_tensor import StepError, Tensor

_PREFIX = "code_"
_LONGEST_PLACE = 200
_FOLDER = re.compile(_PREFIX + "[0-9a-f]{12}")


def python(folder: Path, *, file: str, function: str) -> Callable[[Tensor], Tensor]:
    """Return the step ``python``: ``function(value: ndarray) -> ndarray`` of a sample, from ``file`` in ``folder``.

    The function receives a copy, and its result is copied, so that it may modify and store both. The axes lose their
    names, a sound loses its rate, and an image whose size or order of axes changed loses its geometry.

    Raises:
        StepError: As ``load_function``.
    """
    called = load_function(folder / file, function)

    def step(tensor: Tensor) -> Tensor:
        try:
            result = called(tensor.values.copy())
        except SystemExit as error:  # code of a model must not end the harness
            raise StepError(f"{function} exited with {error.code!r}") from error
        except Exception as error:
            if location := _locate_error(folder, error):
                error.add_note(location)
            raise
        if not isinstance(result, np.ndarray | np.generic):
            raise StepError(f"{function} returned {type(result).__name__}, expected a NumPy array")
        geometry = tensor.geometry if _keeps_sides(tensor, result.shape) else None
        return tensor._replace(values=np.array(result), layout=None, rate=None, geometry=geometry)

    return step


def _locate_error(folder: Path, error: BaseException) -> str | None:
    """Return the file and line below ``folder`` that raised ``error``, or that called the code that did."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    own_frames = [(Path(name), line) for name, line in frames if Path(name).is_relative_to(folder)]
    if not own_frames:
        return None
    path, line = own_frames[-1]
    return f"{path.relative_to(folder)}, line {line}"[:_LONGEST_PLACE]


def _keeps_sides(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether an image's height and width are axes of ``shape``, in this order."""
    if tensor.geometry is None or shape == tensor.values.shape:
        return True
    axes = iter(shape)
    return all(side in axes for side in tensor.geometry.size)


def load_function(path: Path, name: str) -> Callable[..., Any]:
    """Return the function ``name`` of the module in the file ``path``, which is executed only once per process.

    The module can import sibling files as a script does (``import sibling``), or as a package does (`from .sibling
    import name`).

    Raises:
        StepError: The file or function does not exist, or the code fails; the message has the reason.
    """
    module = _module(path)
    function = getattr(module, name, None)
    if not callable(function):
        raise StepError(f"{path.name} has no function {name!r}")
    return function  # type: ignore[no-any-return]


def _module(path: Path) -> ModuleType:
    package = _package(path)
    name = f"{package}.{path.stem.replace('.', '_')}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise StepError(f"{path.name} is not a Python file")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, MemoryError | KeyboardInterrupt):
            raise
        raise StepError(f"cannot execute {path.name}: {type(error).__name__}: {error}") from error
    return module


def _package(path: Path) -> str:
    """Return the name of the package for the folder of ``path``, and make the folder importable."""
    folder = path.parent
    name = f"{_PREFIX}{sha256(str(folder.resolve()).encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        _check_apart(path)
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
        sys.path.insert(0, str(folder))
    return name


def _check_apart(path: Path) -> None:
    """Raise where a sibling has the name of a file in another code folder, since imports would be ambiguous."""
    siblings = {file.name for file in path.parent.glob("*.py")} - {path.name, "__init__.py"}
    for folder in (Path(module.__path__[0]) for key, module in sys.modules.items() if _FOLDER.fullmatch(key)):
        for name in sorted(siblings):
            if (folder / name).exists():
                raise StepError(f"{name} is in both folders {path.parent.name} and {folder.name}; rename one of them")
