"""The build of an image: wheels locked (PEP 751), layers assembled, manifests written.

A build needs no daemon, and no network once the wheels are stored. The same base and wheels give the same image id in
any folder and on any machine, and the same wheel gives the same layer in every image.
"""

import filecmp
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tomlkit
from msgspec import UNSET, structs
from packaging.markers import Marker
from packaging.pylock import Package, PackageWheel, Pylock
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, to_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.images.base_image import Base, RemoteBase, debian_tarball, open_base
from benchlock.evaluator.images.external_tools import disk_errors
from benchlock.evaluator.images.frameworks import (
    HARNESS_REQUIREMENTS,
    FrameworkChoice,
    check_device,
    choose_framework,
    parse_requirement,
)
from benchlock.evaluator.images.image_layers import PACKAGES, PREFIX, encode_config, list_files, write_layer
from benchlock.evaluator.images.wheel_install import Layout, Sources, compile_all, install_wheel, run_parallel
from benchlock.evaluator.images.wheels import IndexOptions, Target, Wheel, copy, fetch, host_target, resolve
from benchlock.registry.manifests.manifest_types import File, Framework, Image, Platform, Provision, Role
from benchlock.registry.versions.semantic_version import Version as SemanticVersion
from benchlock.registry.versions.semantic_version import from_pep440

WHEELS = "wheels"
"""The folder of the wheels, beside the lock."""


def encode_pylock(wheels: Iterable[Wheel], sizes: Mapping[Digest, int], target: Target) -> bytes:
    """Encode the PEP 751 lock of ``wheels`` for one platform; packages are sorted by name.

    Args:
        wheels: The wheels of the resolution.
        sizes: Their sizes in bytes by digest.
        target: The platform.
    """
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


LAYERS = "layers"
"""The folder of the layers, beside the lock of the wheels."""

_MAX_LAYERS = 121
"""Engines that stack layers with overlayfs support about 125."""
_MAX_SKIPPED = 20
"""Maximum number of releases that are tried and do not fit."""
_TREES = "benchlock-build"


@dataclass(frozen=True, slots=True)
class _Tree:
    """One wheel, and the folder in the base's unpacked root below which it is installed."""

    wheel: Path
    folder: Path

    def sources(self) -> Sources:
        return Sources(Path(f"{self.folder}{PACKAGES}"), f"/{_TREES}/{self.folder.name}{PACKAGES}", PACKAGES)


def layer_path(layer: Digest) -> str:
    """Return the path of a layer, relative to the workspace and in the manifest."""
    return f"{LAYERS}/{to_hex(layer)}.tar"


def assemble(base: Base, wheels: Mapping[Digest, Path], workspace: Path, progress: Progress) -> tuple[Descriptor, ...]:
    """Put the layers into ``workspace``: the base's, which are moved, then one per wheel in the given order.

    Args:
        base: The base.
        wheels: The paths of the wheels by digest.
        workspace: The folder of the build.
        progress: Receives the progress.

    Raises:
        InvalidInputError: A wheel is invalid, there are too many, or two have different files at one path.
        UnavailableError: The base's Python does not run.
    """
    if len(base.layers) + len(wheels) > _MAX_LAYERS:
        raise InvalidInputError(
            f"{len(base.layers)} layers of the base and {len(wheels)} of wheels exceed the limit of engines "
            f"({_MAX_LAYERS})",
            next_step="use another base, with fewer layers, or build without layers",
        )
    (workspace / LAYERS).mkdir()
    # The name of a tree depends only on its wheel's digest, so that the compiler sees the same paths in every build.
    trees = [_Tree(wheel, base.root / _TREES / to_hex(digest)) for digest, wheel in wheels.items()]
    layout = Layout(PREFIX, PACKAGES, base.python)
    _each("unpacking wheels", trees, lambda tree: install_wheel(tree.wheel, tree.folder, layout), progress)
    _refuse_clashes(trees)
    compile_all(base.command(), [tree.sources() for tree in trees], base.environment(), progress)
    layers: dict[Path, Descriptor] = {}
    _each("writing layers", trees, lambda tree: layers.update({tree.wheel: _write(tree, workspace)}), progress)
    for tarball, descriptor in dict(base.layers).items():
        tarball.rename(workspace / layer_path(descriptor.digest))
    return *(descriptor for _, descriptor in base.layers), *(layers[tree.wheel] for tree in trees)


def _each(label: str, trees: Sequence[_Tree], action: Callable[[_Tree], None], progress: Progress) -> None:
    # Process the largest first, so that it does not occupy a single core at the end.
    by_size = sorted(trees, key=lambda tree: -tree.wheel.stat().st_size)
    with progress.task(label, len(trees)) as advance:
        for _ in run_parallel(action, by_size):
            advance(1)


def _write(tree: _Tree, workspace: Path) -> Descriptor:
    unnamed = workspace / LAYERS / f"{tree.folder.name}.part"
    layer = write_layer(tree.folder, unnamed)
    unnamed.rename(workspace / layer_path(layer.digest))
    return layer


def _refuse_clashes(trees: Iterable[_Tree]) -> None:
    """Raise where two wheels have different files at one path, since their order would decide the content."""
    owners: dict[str, tuple[_Tree, Path]] = {}
    for tree in trees:
        for path, file in list_files(tree.folder):
            first, other = owners.setdefault(path, (tree, file))
            if other is not file and not filecmp.cmp(file, other, shallow=False):
                raise InvalidInputError(
                    f"{first.wheel.name} and {tree.wheel.name} contain different files with the same name",
                    where=path,
                    next_step="omit one of the two, or choose other versions",
                )


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """Options of a build.

    ``base`` is a root file system as an uncompressed tar, or an image in a registry; without it the Debian base is
    built.
    """

    device: str = "cpu"
    requirements: tuple[str, ...] = ()
    index: IndexOptions = field(default_factory=IndexOptions)
    base: Path | RemoteBase | None = None
    layers: bool = True
    version: str = "1.0.0"


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """The authored manifests of an image and its framework; the image's files are in ``folder``, the workspace."""

    image: Image
    framework: Framework
    folder: Path

    @property
    def image_id(self) -> Digest | None:
        """The digest of the configuration; None for an image without layers."""
        config = self.image.platforms[0].config
        return None if config is UNSET else Digest(config)


@dataclass(frozen=True, slots=True)
class Builder:
    """The folders and the store of a build.

    ``workspace`` is an empty folder that the caller removes. ``store`` supplies wheels and the Debian base before
    anything is downloaded, and stores a new Debian base. ``cache`` is the folder with the pointer to that blob.
    """

    workspace: Path
    cache: Path
    store: BlobStore
    progress: Progress

    def build(
        self, spec: str, options: BuildOptions, admits: Callable[[SemanticVersion], bool] | None = None
    ) -> BuiltImage:
        """Build an image without publishing it.

        Args:
            spec: ``NAME==VERSION``; or a name alone or with other clauses, for the newest release that fits.
            options: The options of the build.
            admits: Which releases fit; None for all. A pinned version needs no leave.

        Raises:
            InvalidInputError: The framework, version or a requirement is unknown, or the wheels conflict.
            IntegrityError: The bytes of a wheel do not match the digest in the resolution.
            UnavailableError: pip, the index, mmdebstrap or chroot is missing or failed.
        """
        with disk_errors("building an image"):
            return self._build(spec, options, admits or (lambda _: True))

    def _build(self, spec: str, options: BuildOptions, admits: Callable[[SemanticVersion], bool]) -> BuiltImage:
        choice = choose_framework(spec, options.device)
        extra = [str(parse_requirement(text)) for text in options.requirements]
        if options.base is not None and not options.layers:
            raise InvalidInputError(
                "an image without layers has no base", next_step="omit the base, or build with layers"
            )
        base = self._base(options.base) if options.layers else None
        target = host_target() if base is None else base.target
        with self.progress.task("resolving wheels"):
            wheels = self._resolve(choice, extra, target, options.index, admits)
        check_device(wheels, options.device)
        platform, files = self._lock(wheels, target, options)
        if base is not None:
            platform, more = self._assemble(base, _order_layers(wheels, choice), platform)
            files += more
        return BuiltImage(*_manifests(choice, wheels, platform, files, options.version), self.workspace)

    def _resolve(
        self,
        choice: FrameworkChoice,
        extra: Sequence[str],
        target: Target,
        index: IndexOptions,
        admits: Callable[[SemanticVersion], bool],
    ) -> tuple[Wheel, ...]:
        """Resolve the wheels of the pinned version, or of the newest release that fits.

        A release fits if SemVer can express its version, and ``admits`` returns true.
        """
        requirements = [choice.requirement, *HARNESS_REQUIREMENTS, *extra]
        skipped: list[str] = []
        while len(skipped) < _MAX_SKIPPED:
            exclusions = [f"{choice.distribution}!={version}" for version in skipped]
            try:
                wheels = resolve([*requirements, *exclusions], target, index, scratch=self.workspace)
            except InvalidInputError:
                if skipped:
                    break
                raise
            version = _find_version(wheels, choice)
            if choice.is_pinned or _fits(version, admits):
                return wheels
            skipped.append(version)
        name = choice.framework.name
        raise InvalidInputError(
            f"no release of {name} fits; not {', '.join(skipped)}", next_step=f"choose a version: {name}==VERSION"
        )

    def _base(self, base: Path | RemoteBase | None) -> Base:
        if isinstance(base, RemoteBase):
            return base.fetch(self.workspace, self.store, self.progress)
        tarball = self.workspace / "base.tar"
        if base is None:
            debian_tarball(tarball, self.cache, self.store, self.progress)
        else:
            try:
                with base.open("rb") as stream:
                    copy(stream, tarball)
            except OSError as error:
                raise InvalidInputError(f"cannot read the base: {error}", where=str(base)) from error
        return open_base(tarball, self.workspace / "root")

    def _lock(self, wheels: Sequence[Wheel], target: Target, options: BuildOptions) -> tuple[Platform, list[File]]:
        with self.progress.task("fetching wheels"):
            sizes = fetch(wheels, self.workspace / WHEELS, target, options.index, self.store)
        name = f"pylock.linux-{target.arch}-{options.device}.toml"
        files = [self._write(name, encode_pylock(wheels, sizes, target), "wheels")]
        files += [_file(f"{WHEELS}/{wheel.filename}", "wheels", wheel.digest) for wheel in wheels]
        platform = Platform(os="linux", arch=target.arch, device=options.device, python=target.python, wheels=name)
        return platform, files

    def _assemble(self, base: Base, wheels: Iterable[Wheel], platform: Platform) -> tuple[Platform, list[File]]:
        paths = {wheel.digest: self.workspace / WHEELS / wheel.filename for wheel in wheels}
        layers = [layer.digest for layer in assemble(base, paths, self.workspace, self.progress)]
        config = encode_config(platform.arch, layers, base.settings)
        files = [self._write(f"config.{platform.os}-{platform.arch}-{platform.device}.json", config, "config")]
        files += [_file(layer_path(layer), "layer", layer) for layer in dict.fromkeys(layers)]
        return structs.replace(platform, config=digest_bytes(config), layers=tuple(layers)), files

    def _write(self, path: str, content: bytes, role: Role) -> File:
        (self.workspace / path).write_bytes(content)
        return _file(path, role, digest_bytes(content))


def _file(path: str, role: Role, digest: Digest) -> File:
    return File(path=path, role=role, source=f"./{path}", sha256=to_hex(digest))


def _order_layers(wheels: Sequence[Wheel], choice: FrameworkChoice) -> list[Wheel]:
    """Return ``wheels`` in the order of their layers: the harness's requirements first, the framework last.

    An engine shares a layer between images only where all lower layers are equal.
    """
    harness = {Requirement(text).name for text in HARNESS_REQUIREMENTS}
    return sorted(wheels, key=lambda wheel: (wheel.name not in harness, wheel.name == choice.distribution, wheel.name))


def _find_version(wheels: Iterable[Wheel], choice: FrameworkChoice) -> str:
    """Return the version of the framework's wheel."""
    return next(wheel.version for wheel in wheels if wheel.name == choice.distribution)


def _fits(version: str, admits: Callable[[SemanticVersion], bool]) -> bool:
    """Return whether SemVer can express a version, and ``admits`` returns true for it."""
    try:
        return admits(from_pep440(version))
    except InvalidInputError:
        return False


def _manifests(
    choice: FrameworkChoice, wheels: Iterable[Wheel], platform: Platform, files: Sequence[File], version: str
) -> tuple[Image, Framework]:
    upstream = _find_version(wheels, choice)
    framework = Framework(
        schema=1,
        name=choice.framework.name,
        version=str(from_pep440(upstream)),
        license=choice.framework.license,
        predictor=choice.framework.predictor,
        distributions=choice.framework.distributions,
    )
    image = Image(
        schema=1,
        name=f"{framework.name}-{platform.device}",
        version=version,
        license="various",
        provides=Provision(framework=framework.name, version=framework.version),
        platforms=(platform,),
        files=tuple(files),
    )
    return image, framework
