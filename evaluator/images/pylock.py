"""The lock of an image's wheels: PEP 751, by path and digest alone, and the same bytes for the same wheels."""

from collections.abc import Iterable, Mapping

import tomlkit
from packaging.markers import Marker
from packaging.pylock import Package, PackageWheel, Pylock
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from benchlock.artifacts.digest import Digest, to_hex
from benchlock.evaluator.images.target import Target
from benchlock.evaluator.images.wheels import Wheel

WHEELS = "wheels"
"""The folder of the wheels, beside the lock."""


def encode_pylock(wheels: Iterable[Wheel], sizes: Mapping[Digest, int], target: Target) -> bytes:
    """The PEP 751 lock of ``wheels`` for one platform; packages sorted by name."""
    marker = (
        f"implementation_name == 'cpython' and python_version == '{target.python}' "
        f"and sys_platform == 'linux' and platform_machine == '{target.machine}'"
    )
    lock = Pylock(
        lock_version=Version("1.0"),
        environments=[Marker(marker)],
        requires_python=SpecifierSet(f"=={target.python}.*"),
        created_by="benchlock",
        packages=[_package(wheel, sizes[wheel.digest]) for wheel in sorted(wheels, key=lambda wheel: wheel.name)],
    )
    lock.validate()
    return tomlkit.dumps(lock.to_dict()).encode()


def _package(wheel: Wheel, size: int) -> Package:
    path = f"{WHEELS}/{wheel.filename}"
    return Package(
        name=wheel.name,
        version=Version(wheel.version),
        wheels=[PackageWheel(path=path, size=size, hashes={"sha256": to_hex(wheel.digest)})],
    )
