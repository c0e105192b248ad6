"""An image from a framework's name: wheels resolved and locked, layers assembled, manifests written.

Needs no daemon; and no network once the wheels are there. The same base and the same wheels give the same image id in
any folder and on any machine, and an equal wheel gives an equal layer in every image.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import UNSET, structs
from packaging.requirements import Requirement

from benchlock.artifacts.digest import Digest, digest_bytes, to_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.progress import Progress
from benchlock.artifacts.store import BlobStore
from benchlock.evaluator.images.assemble import assemble, layer_path
from benchlock.evaluator.images.base import Base, debian_tarball, open_base
from benchlock.evaluator.images.commands import disk_errors
from benchlock.evaluator.images.config import encode_config
from benchlock.evaluator.images.devices import check_device
from benchlock.evaluator.images.frameworks import HARNESS_REQUIREMENTS, FrameworkChoice, choose, parse_requirement
from benchlock.evaluator.images.pylock import WHEELS, encode_pylock
from benchlock.evaluator.images.remote_base import RemoteBase
from benchlock.evaluator.images.target import Target, host_target
from benchlock.evaluator.images.wheels import IndexOptions, Wheel, copy, fetch, resolve
from benchlock.registry.manifests.model import File, Role
from benchlock.registry.manifests.others import Framework, Image, Platform, Provision
from benchlock.registry.versions import from_pep440


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """What a build may vary.

    ``base`` is a root file system as an uncompressed tar, or an image in a registry; without it Debian's is made.
    """

    device: str = "cpu"
    requirements: tuple[str, ...] = ()
    index: IndexOptions = field(default_factory=IndexOptions)
    base: Path | RemoteBase | None = None
    layers: bool = True
    version: str = "1.0.0"


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """Authored manifests of an image and its framework; the image's files are in ``folder``, the build's workspace."""

    image: Image
    framework: Framework
    folder: Path

    @property
    def image_id(self) -> Digest | None:
        """The digest of the config; none where the image has no layers."""
        config = self.image.platforms[0].config
        return None if config is UNSET else Digest(config)


@dataclass(frozen=True, slots=True)
class Builder:
    """What a build works with.

    ``workspace`` is an empty folder that the caller removes. ``store`` is asked for wheels and the Debian base before
    anything is fetched, and keeps that base; ``cache`` is a folder that remembers which blob it is.
    """

    workspace: Path
    cache: Path
    store: BlobStore
    progress: Progress

    def build(self, spec: str, options: BuildOptions) -> BuiltImage:
        """Build the image that ``spec`` (``NAME==VERSION``) asks for. Nothing is published.

        Raises:
            InvalidInputError: an unknown framework, version or requirement, or wheels that cannot stand side by side.
            IntegrityError: a wheel has other bytes than the resolution promised.
            UnavailableError: pip, the index, mmdebstrap or chroot is missing or failed.
        """
        with disk_errors("building an image"):
            return self._build(spec, options)

    def _build(self, spec: str, options: BuildOptions) -> BuiltImage:
        choice = choose(spec, options.device)
        extra = [str(parse_requirement(text)) for text in options.requirements]
        if options.base is not None and not options.layers:
            raise InvalidInputError("an image without layers stands on no base", next_step="drop --base or --no-layers")
        base = self._base(options.base) if options.layers else None
        target = host_target() if base is None else base.target
        with self.progress.task("resolving wheels"):
            wanted = [choice.requirement, *HARNESS_REQUIREMENTS, *extra]
            wheels = resolve(wanted, target, options.index, scratch=self.workspace)
        check_device(wheels, options.device)
        platform, files = self._lock(wheels, target, options)
        if base is not None:
            platform, more = self._assemble(base, _stacked(wheels, choice), platform)
            files += more
        return BuiltImage(*_manifests(choice, wheels, platform, files, options.version), self.workspace)

    def _base(self, given: Path | RemoteBase | None) -> Base:
        if isinstance(given, RemoteBase):
            return given.fetch(self.workspace, self.store, self.progress)
        tarball = self.workspace / "base.tar"
        if given is None:
            debian_tarball(tarball, self.cache, self.store, self.progress)
        else:
            try:
                with given.open("rb") as stream:
                    copy(stream, tarball)
            except OSError as error:
                raise InvalidInputError(f"the base cannot be read: {error}", where=str(given)) from error
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


def _stacked(wheels: Sequence[Wheel], choice: FrameworkChoice) -> list[Wheel]:
    """``wheels`` in the order of their layers: the harness's first, the framework last.

    An engine shares a layer between images only where all below it are equal too.
    """
    harness = {Requirement(text).name for text in HARNESS_REQUIREMENTS}
    return sorted(wheels, key=lambda wheel: (wheel.name not in harness, wheel.name == choice.distribution, wheel.name))


def _manifests(
    choice: FrameworkChoice, wheels: Iterable[Wheel], platform: Platform, files: Sequence[File], version: str
) -> tuple[Image, Framework]:
    upstream = next(wheel.version for wheel in wheels if wheel.name == choice.distribution)
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
