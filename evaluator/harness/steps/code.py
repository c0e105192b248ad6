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

from .tensor import StepError, Tensor

_PREFIX = "code_"
_LONGEST_PLACE = 200
_FOLDER = re.compile(_PREFIX + "[0-9a-f]{12}")


def python(folder: Path, *, file: str, function: str) -> Callable[[Tensor], Tensor]:
    """The step ``python``: ``function(value: ndarray) -> ndarray`` of one sample, in ``file`` below ``folder``.

    It gets an array of its own, and what it gives is copied, so that it may keep and change both. The axes lose their
    names, and a sound its rate; a picture whose size, or the order of whose axes, is another now, the way back to its
    original.

    Raises:
        StepError: as ``load_function``.
    """
    called = load_function(folder / file, function)

    def step(tensor: Tensor) -> Tensor:
        try:
            result = called(tensor.values.copy())
        except SystemExit as error:  # nothing of a model ends the harness
            raise StepError(f"{function} exits with {error.code!r}") from error
        except Exception as error:
            if place := _place_in(folder, error):
                error.add_note(place)
            raise
        if not isinstance(result, np.ndarray | np.generic):
            raise StepError(f"{function} gives {type(result).__name__}, a NumPy array is needed")
        geometry = tensor.geometry if _lies_as(tensor, result.shape) else None
        return tensor._replace(values=np.array(result), layout=None, rate=None, geometry=geometry)

    return step


def _place_in(folder: Path, error: BaseException) -> str | None:
    """Return the file below ``folder`` and the line where ``error`` was raised, or the last call out of that code."""
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    own = [(Path(name), line) for name, line in frames if Path(name).is_relative_to(folder)]
    if not own:
        return None
    path, line = own[-1]
    return f"{path.relative_to(folder)}, line {line}"[:_LONGEST_PLACE]


def _lies_as(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a picture's height and width are axes of ``shape``, in this order."""
    if tensor.geometry is None or shape == tensor.values.shape:
        return True
    axes = iter(shape)
    return all(side in axes for side in tensor.geometry.size)


def load_function(path: Path, name: str) -> Callable[..., Any]:
    """The function called ``name`` of the module in the file ``path``, which is executed once, however often asked for.

    The module finds its sibling files as a script does (``import sibling``), or as part of a package (``from .sibling
    import name``).

    Raises:
        StepError: there is no such file or function, or the code fails, with its reason.
    """
    module = _module(path)
    found = getattr(module, name, None)
    if not callable(found):
        raise StepError(f"{path.name} has no function {name!r}")
    return found  # type: ignore[no-any-return]


def _module(path: Path) -> ModuleType:
    package = _package(path)
    name = f"{package}.{path.stem.replace('.', '_')}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise StepError(f"{path.name} is no file of Python code")
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, MemoryError | KeyboardInterrupt):
            raise
        raise StepError(f"{path.name} cannot be executed: {type(error).__name__}: {error}") from error
    return module


def _package(path: Path) -> str:
    """The name of the package that stands for the folder of ``path``, whose files can be imported from now on."""
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
    """No sibling has the name of a file in another folder of code: an import would find either."""
    siblings = {file.name for file in path.parent.glob("*.py")} - {path.name, "__init__.py"}
    for folder in (Path(module.__path__[0]) for key, module in sys.modules.items() if _FOLDER.fullmatch(key)):
        for name in sorted(siblings):
            if (folder / name).exists():
                raise StepError(f"{name} is in the folders {path.parent.name} and {folder.name}; rename one of them")
