"""Inspection of images: configuration, wheels and references fit the declared platforms."""

import re
from collections.abc import Callable, Sequence

from msgspec import UNSET
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from benchlock.artifacts.digest import parse_digest, to_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.inspection.draft_content import DraftContent
from benchlock.registry.inspection.formats.image_documents import (
    Configuration,
    ListedWheel,
    parse_configuration,
    read_wheels,
)
from benchlock.registry.inspection.formats.untrusted_files import BUDGET, read_whole
from benchlock.registry.manifests import Image, Platform
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.versions.semantic_version import from_pep440, key, parse_version

Ask = Callable[[str, str, str], bytes | None]
"""A function from reference, os and arch to the configuration of that image; None if it cannot be looked up."""

CPU = "cpu"
_MACHINES = {"amd64": ("x86_64", "amd64", "x64"), "arm64": ("aarch64", "arm64"), "ppc64le": ("ppc64le",)}
"""The names of an architecture in the tags of wheels and of images."""
_SYSTEMS = {"linux": ("manylinux", "musllinux", "linux"), "darwin": ("macosx",), "windows": ("win",)}
_ACCELERATED_LABEL = re.compile(r"\+(cu|cuda|rocm|xpu)[0-9.]*")
_ACCELERATED = re.compile(r"(.*-)?(gpu|cuda[0-9]*|rocm[0-9]*)(-.*)?|nvidia-.*|triton")
_ACCELERATED_ALONE = re.compile(r"(.*-)?(gpu|cuda[0-9]*|rocm[0-9]*)(-.*)?")
_CPU_ALONE = re.compile(r"(.*-)?cpu(-.*)?")
_BETWEEN_WORDS = re.compile(r"[^a-z0-9_]+")


def check_image(image: Image, content: DraftContent, problems: Problems, *, warn: Callable[[str], None]) -> None:
    """Compare each platform with its configuration, its wheels or its reference.

    Args:
        image: The manifest.
        content: The files of the draft.
        problems: Receives what is wrong.
        warn: Receives what is unusual.
    """
    for index, platform in enumerate(image.platforms):
        where = f"platforms[{index}]"
        if platform.reference is not UNSET:
            with problems.noted():
                _check_reference(platform, content, where)
        if platform.config is not UNSET:
            with problems.noted():
                _check_config(platform, content, problems, where)
        if platform.wheels is not UNSET:
            _check_wheels(image, platform, content, problems, where, warn)


def check_finished(image: Image, content: DraftContent, problems: Problems, ask: Ask) -> None:
    """Compare each finished image with its configuration.

    Args:
        image: The manifest.
        content: The files of the draft.
        problems: Receives what is wrong.
        ask: Looks up configurations.
    """
    for index, platform in enumerate(image.platforms):
        if platform.reference is not UNSET:
            with problems.noted():
                _check_finished(platform, ask, content, f"platforms[{index}]")


def _check_finished(platform: Platform, ask: Ask, content: DraftContent, where: str) -> None:
    """Compare os and arch of a finished image with its configuration, if that can be looked up."""
    try:
        text = ask(str(platform.reference), platform.os, platform.arch)
        configuration = None if text is None else parse_configuration(text)
    except InvalidInputError as error:
        raise content.error(error.what, f"{where}.reference", error.next_step) from error
    if configuration is not None:
        _check_made_for(platform, configuration, content, where)


def _check_config(platform: Platform, content: DraftContent, problems: Problems, where: str) -> None:
    """Compare a platform with its configuration."""
    path = content.path_of(parse_digest(str(platform.config)))
    if path is None:
        return  # the rules of manifests report a configuration that is not a file
    with content.open(path, f"{where}.config") as stream:
        try:
            configuration = parse_configuration(read_whole(stream, BUDGET.document))
        except InvalidInputError as error:
            raise content.error(error.what, f"{where}.config") from error
    with problems.noted():
        _check_made_for(platform, configuration, content, where)
    declared = () if platform.layers is UNSET else platform.layers
    if declared != configuration.layers:
        raise content.error(
            f"the {len(configuration.layers)} layers of the image differ from the {len(declared)} in the manifest",
            f"{where}.layers",
            "write the digests of the uncompressed layers in the order of the configuration",
        )


def _check_made_for(platform: Platform, configuration: Configuration, content: DraftContent, where: str) -> None:
    """Check that an image is made for the os and arch of the platform."""
    for name in ("os", "arch"):
        if getattr(platform, name) != getattr(configuration, name):
            raise content.error(
                f"the image is built for {getattr(configuration, name)}, not {getattr(platform, name)}",
                f"{where}.{name}",
                f"write {name}: {getattr(configuration, name)}",
            )


def _check_wheels(
    image: Image, platform: Platform, content: DraftContent, problems: Problems, where: str, warn: Callable[[str], None]
) -> None:
    """Check the wheels of a platform."""
    wheels: tuple[ListedWheel, ...] = ()
    with problems.noted():
        wheels = _read_lock(str(platform.wheels), content, where)
    for wheel in wheels:
        with problems.noted():
            _check_wheel(wheel, platform, content, where)
    with problems.noted():
        _check_device(wheels, platform, content, where, warn)
    with problems.noted():
        _check_provided(image, wheels, content, where)


def _read_lock(path: str, content: DraftContent, where: str) -> tuple[ListedWheel, ...]:
    """Read the lock of the wheels."""
    with content.open(path, f"{where}.wheels") as stream:
        return read_wheels(read_whole(stream, BUDGET.document), path)


def _check_wheel(wheel: ListedWheel, platform: Platform, content: DraftContent, where: str) -> None:
    """Check that a wheel is a file of the image with these bytes, and fits Python, system and machine."""
    path, place = wheel.path, f"{where}.wheels"
    if path not in content.files:
        content.refuse_untaken(path)
        what = f"{platform.wheels} lists {path}, which is not in files: the image cannot be locked"
        raise content.error(what, place, "add the wheel to files, with the role wheels")
    blob = content.files[path]
    if wheel.sha256 != to_hex(blob.digest) or wheel.size not in (None, blob.size):
        what = f"{path} is not the wheel that {platform.wheels} lists: it has the sha256 {to_hex(blob.digest)}"
        raise content.error(what, place, "create the wheels lock again, or add the wheel that it lists")
    if not _runs_on(wheel.filename, platform):
        what = f"{wheel.filename} is not for {platform.os}/{platform.arch} and Python {platform.python}"
        raise content.error(what, place, "correct the platform, or lock the wheels that it needs")


def _runs_on(filename: str, platform: Platform) -> bool:
    """Return whether one of the wheel's tags (PEP 425) fits the platform."""
    try:
        tags = parse_wheel_filename(filename)[3]
    except InvalidWheelFilename as error:
        raise InvalidInputError(f"{filename} is not a wheel file name: {error}", where=filename) from error
    minor = int(platform.python.partition(".")[2])
    return any(_fits_python(tag.interpreter, tag.abi, minor) and _fits_machine(tag.platform, platform) for tag in tags)


def _fits_python(interpreter: str, abi: str, minor: int) -> bool:
    """Return whether a wheel with these tags runs on Python 3.``minor``."""
    if interpreter in (f"cp3{minor}", f"py3{minor}", "py3"):
        return True
    older = re.fullmatch(r"(cp|py)3([0-9]+)", interpreter)
    return older is not None and int(older[2]) <= minor and (abi in ("abi3", "none"))


def _fits_machine(tag: str, platform: Platform) -> bool:
    """Return whether a platform tag fits the system and the machine."""
    if tag == "any":
        return True
    systems, machines = _SYSTEMS.get(platform.os), _MACHINES.get(platform.arch)
    of_system = systems is None or tag.startswith(systems)
    of_machine = machines is None or tag.endswith((*machines, "universal2"))
    return of_system and of_machine


def _check_device(
    wheels: Sequence[ListedWheel], platform: Platform, content: DraftContent, where: str, warn: Callable[[str], None]
) -> None:
    """Check that names and versions of the wheels do not mark them as made only for the other sort of device."""
    labelled = [wheel for wheel in wheels if _ACCELERATED_LABEL.search(wheel.version)]
    cpu_only = [wheel for wheel in wheels if wheel.version.endswith("+cpu") or _CPU_ALONE.fullmatch(wheel.distribution)]
    if platform.device == CPU:
        accelerator_only = [*labelled, *(wheel for wheel in wheels if _ACCELERATED_ALONE.fullmatch(wheel.distribution))]
        gpu = [wheel for wheel in wheels if _ACCELERATED.fullmatch(wheel.distribution)]
        if accelerator_only and not cpu_only:
            what = f"the device is cpu, but {_format_first(accelerator_only)} is for an accelerator"
            raise content.error(what, f"{where}.device", "write the device of the accelerator, or lock wheels for CPUs")
        if gpu:
            warn(f"{where}: the device is cpu, but {len(gpu)} of the wheels are for accelerators: {_format_first(gpu)}")
    elif cpu_only:
        what = f"the device is {platform.device}, but {_format_first(cpu_only)} is only for CPUs"
        raise content.error(what, f"{where}.device", "write device: cpu, or lock wheels for the device")


def _format_first(wheels: Sequence[ListedWheel]) -> str:
    """Return name and version of the first wheel."""
    return f"{wheels[0].distribution} {wheels[0].version}"


def _check_provided(image: Image, wheels: Sequence[ListedWheel], content: DraftContent, where: str) -> None:
    """Check that one of the wheels has the framework version that the image provides."""
    provided = key(parse_version(image.provides.version))
    if wheels and not any(_mapped(wheel.version) == provided for wheel in wheels):
        what = f"none of the wheels has the version {image.provides.version} of {image.provides.framework}"
        raise content.error(what, f"{where}.wheels", "correct provides, or lock that version")


def _mapped(version: str) -> str:
    """Return the sort key of a PEP 440 version; empty if it has none."""
    try:
        return key(from_pep440(version))
    except InvalidInputError:
        return ""


def _check_reference(platform: Platform, content: DraftContent, where: str) -> None:
    """Check that the name of a finished image does not contradict the platform; its bytes are compared on pull."""
    words = set(_BETWEEN_WORDS.split(str(platform.reference).partition("@")[0].lower()))
    accelerated = any(re.fullmatch(r"gpu|cuda[0-9]*|rocm[0-9]*", word) for word in words)
    if platform.device == CPU and accelerated and CPU not in words:
        what = f"the device is cpu, but the name of {platform.reference} is that of an image for accelerators"
        raise content.error(what, f"{where}.device", "correct the device or the image")
    if platform.device != CPU and CPU in words and not accelerated:
        what = f"the device is {platform.device}, but the name of {platform.reference} is that of an image for CPUs"
        raise content.error(what, f"{where}.device", "write device: cpu, or correct the image")
    other = next((arch for arch, names in _MACHINES.items() if words & set(names)), platform.arch)
    if other != platform.arch:
        what = (
            f"the architecture is {platform.arch}, but the name of {platform.reference} is that of an image for {other}"
        )
        raise content.error(what, f"{where}.arch", f"write arch: {other}, or correct the image")
