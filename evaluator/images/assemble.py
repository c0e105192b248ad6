"""Wheels into layers: one a wheel, so that equal wheels are equal layers in every image."""

import filecmp
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchlock.artifacts.digest import Descriptor, Digest, to_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.progress import Progress
from benchlock.evaluator.images.base import Base
from benchlock.evaluator.images.bytecode import Sources, compile_all
from benchlock.evaluator.images.config import PACKAGES, PREFIX
from benchlock.evaluator.images.files import files_below
from benchlock.evaluator.images.install import Layout, install_wheel
from benchlock.evaluator.images.layers import write_layer
from benchlock.evaluator.images.parallel import parallel

LAYERS = "layers"
"""The folder of the layers, beside the lock of the wheels."""

_MOST_LAYERS = 121
"""Engines that stack layers with overlayfs stop at about 125."""
_TREES = "benchlock-build"


@dataclass(frozen=True, slots=True)
class _Tree:
    """One wheel, and the folder in the base's unpacked root that it is installed below."""

    wheel: Path
    folder: Path

    def sources(self) -> Sources:
        return Sources(Path(f"{self.folder}{PACKAGES}"), f"/{_TREES}/{self.folder.name}{PACKAGES}", PACKAGES)


def layer_path(layer: Digest) -> str:
    """Where a layer is, relative to the workspace and in the manifest."""
    return f"{LAYERS}/{to_hex(layer)}.tar"


def assemble(base: Base, wheels: Mapping[Digest, Path], workspace: Path, progress: Progress) -> tuple[Descriptor, ...]:
    """Put the layers into ``workspace``: the base's, which are moved, then one a wheel in the order given.

    Raises:
        InvalidInputError: a wheel is invalid, there are too many, or two hold different files of one name.
        UnavailableError: the base's Python does not run.
    """
    if len(base.layers) + len(wheels) > _MOST_LAYERS:
        raise InvalidInputError(
            f"{len(base.layers)} layers of the base and {len(wheels)} wheels, each a layer, are more than engines take "
            f"({_MOST_LAYERS})",
            next_step="use --no-layers, or a base of fewer layers",
        )
    (workspace / LAYERS).mkdir()
    # A tree is named by its wheel's digest alone: what compiles it sees the same paths in every build.
    trees = [_Tree(wheel, base.root / _TREES / to_hex(digest)) for digest, wheel in wheels.items()]
    _each("unpacking wheels", trees, lambda tree: _install(tree, base.python), progress)
    _refuse_clashes(trees)
    compile_all(base.command(), [tree.sources() for tree in trees], base.environment(), progress)
    layers: dict[Path, Descriptor] = {}
    _each("writing layers", trees, lambda tree: layers.update({tree.wheel: _write(tree, workspace)}), progress)
    for tarball, descriptor in dict(base.layers).items():
        tarball.rename(workspace / layer_path(descriptor.digest))
    return *(descriptor for _, descriptor in base.layers), *(layers[tree.wheel] for tree in trees)


def _each(label: str, trees: Sequence[_Tree], action: Callable[[_Tree], None], progress: Progress) -> None:
    # The largest first, so that no core is left alone with it at the end.
    by_size = sorted(trees, key=lambda tree: -tree.wheel.stat().st_size)
    with progress.task(label, len(trees)) as advance:
        for _ in parallel(action, by_size):
            advance(1)


def _install(tree: _Tree, interpreter: str) -> None:
    install_wheel(tree.wheel, tree.folder, Layout(PREFIX, PACKAGES, interpreter))


def _write(tree: _Tree, workspace: Path) -> Descriptor:
    unnamed = workspace / LAYERS / f"{tree.folder.name}.part"
    layer = write_layer(tree.folder, unnamed)
    unnamed.rename(workspace / layer_path(layer.digest))
    return layer


def _refuse_clashes(trees: Iterable[_Tree]) -> None:
    """Where two wheels hold one path, the order of installation would decide what an image contains."""
    owners: dict[str, tuple[_Tree, Path]] = {}
    for tree in trees:
        for path, file in files_below(tree.folder):
            first, other = owners.setdefault(path, (tree, file))
            if other is not file and not filecmp.cmp(file, other, shallow=False):
                raise InvalidInputError(
                    f"{first.wheel.name} and {tree.wheel.name} hold different files of one name",
                    where=path,
                    next_step="leave out one of the two, or choose other versions",
                )
