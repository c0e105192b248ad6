"""A reproducible artifact registry and evaluation store for deep learning.

``benchlock.open`` opens a registry. The names in ``__all__`` are the public Python API; nothing else is stable.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchlock.api.python.python_registry import Registry, open  # noqa: A004 - users write benchlock.open
    from benchlock.api.python.results import (
        ArtifactVersion,
        Claim,
        Comparison,
        Finding,
        Lock,
        Metric,
        Rerun,
        Run,
        Runs,
        Table,
    )
    from benchlock.artifacts.errors import (
        BenchlockError,
        BusyError,
        IntegrityError,
        InvalidInputError,
        RefusedError,
        UnavailableError,
        UnknownNameError,
    )
    from benchlock.registry.resolution.conflicts import ConflictError

__all__ = [
    "ArtifactVersion",
    "BenchlockError",
    "BusyError",
    "Claim",
    "Comparison",
    "ConflictError",
    "Finding",
    "IntegrityError",
    "InvalidInputError",
    "Lock",
    "Metric",
    "RefusedError",
    "Registry",
    "Rerun",
    "Run",
    "Runs",
    "Table",
    "UnavailableError",
    "UnknownNameError",
    "open",
]

_OTHER_MODULES = {
    "ConflictError": "registry.resolution.conflicts",
    "Registry": "api.python.python_registry",
    "open": "api.python.python_registry",
}

if not TYPE_CHECKING:  # for a type checker, it would give the module every name

    def __getattr__(name: str) -> object:
        """Import a public name at its first use (PEP 562), so that ``import benchlock`` loads nothing else."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = "artifacts.errors" if name.endswith("Error") else "api.python.results"
        module = _OTHER_MODULES.get(name, module)
        return getattr(import_module(f"benchlock.{module}"), name)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
