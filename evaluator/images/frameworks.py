"""The supported frameworks: their distributions, requirements and device builds."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.evaluator.images.wheels import Wheel
from benchlock.registry.manifests.manifest_types import PredictorName

HARNESS_REQUIREMENTS = (
    "mlcommons-loadgen==6.0.17",
    "numpy>=2,<3",
    "pillow",
    "pyarrow",
    "pycocotools>=2.0.10",
    "safetensors",
    "tokenizers",
)
"""Requirements of the harness, resolved together with the framework for compatible versions."""


@dataclass(frozen=True, slots=True)
class UpstreamFramework:
    """A framework as published: its distributions, the requirement for each device, and its predictor.

    The requirements of ``devices`` have extras that install CUDA's libraries as wheels.
    """

    name: str
    predictor: PredictorName
    license: str
    distributions: tuple[str, ...]
    devices: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FrameworkChoice:
    """A framework, and the requirement that installs it for one device."""

    framework: UpstreamFramework
    distribution: str
    requirement: str
    is_pinned: bool


FRAMEWORKS: Mapping[str, UpstreamFramework] = {
    framework.name: framework
    for framework in (
        UpstreamFramework("litert", "litert", "Apache-2.0", ("ai-edge-litert",), {"cpu": "ai-edge-litert"}),
        UpstreamFramework(
            "onnxruntime",
            "onnxruntime",
            "MIT",
            ("onnxruntime", "onnxruntime-gpu"),
            {"cpu": "onnxruntime", "cuda12": "onnxruntime-gpu[cuda,cudnn]"},
        ),
        UpstreamFramework("pytorch", "pytorch", "BSD-3-Clause", ("torch",), {"cpu": "torch", "cuda12": "torch"}),
        UpstreamFramework(
            "tensorflow",
            "tensorflow",
            "Apache-2.0",
            ("tensorflow", "tensorflow-cpu"),
            {"cpu": "tensorflow-cpu", "cuda12": "tensorflow[and-cuda]"},
        ),
    )
}


def choose_framework(spec: str, device: str) -> FrameworkChoice:
    """Return the framework and requirement for ``spec`` (``NAME``, with version clauses as pip has them) on ``device``.

    Raises:
        InvalidInputError: The spec has another form, or the framework is unknown or has no distribution for the device.
    """
    requirement = parse_requirement(spec)
    if requirement.extras or requirement.marker:
        raise InvalidInputError(
            f"{spec!r} has extras or a marker", next_step=f"use {requirement.name}, or {requirement.name}==VERSION"
        )
    framework = FRAMEWORKS.get(canonicalize_name(requirement.name))
    if framework is None:
        raise UnknownNameError(
            f"unknown framework {requirement.name!r}", next_step=f"choose one of {', '.join(sorted(FRAMEWORKS))}"
        )
    if device not in framework.devices:
        raise InvalidInputError(
            f"images of {framework.name} for device {device!r} are not supported yet",
            next_step=f"choose one of {', '.join(sorted(framework.devices))}",
        )
    needed = Requirement(framework.devices[device])
    return FrameworkChoice(
        framework,
        needed.name,
        f"{framework.devices[device]}{requirement.specifier}",
        is_pinned=any(
            clause.operator == "==" and not clause.version.endswith(".*") for clause in requirement.specifier
        ),
    )


def parse_requirement(text: str) -> Requirement:
    """Parse a requirement that a package index can answer, so that its wheel can be fetched again by name and digest.

    Raises:
        InvalidInputError: The text is not a requirement, or is a direct reference.
    """
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInputError(f"invalid requirement {text!r}: {reason}", next_step="use NAME==VERSION") from error
    if requirement.url:
        raise InvalidInputError(
            f"requirement {text!r} has a URL",
            next_step="use NAME==VERSION, and the folder of the wheel as another source of wheels",
        )
    return requirement


CPU = "cpu"
_CUDA = "cuda"
_NVIDIA = "nvidia-"
_SUFFIX = re.compile(r"-cu([0-9]+)")
_RUNTIME = "nvidia-cuda-runtime"
"""CUDA's runtime, whose name has no CUDA version from CUDA 13 on, but whose version is that of CUDA."""


def check_device(wheels: Iterable[Wheel], device: str) -> None:
    """Raise unless ``wheels`` are for ``device``: ``cpu`` without NVIDIA's libraries, ``cuda12`` with those of CUDA 12.

    Raises:
        InvalidInputError: The wheels are for another device; the message names them.
    """
    chosen = list(wheels)
    nvidia = [wheel for wheel in chosen if wheel.name.startswith(_NVIDIA)]
    if device == CPU:
        if nvidia:
            raise _refusal(device, f"they need {', '.join(wheel.name for wheel in nvidia)}")
        return
    version = device.removeprefix(_CUDA)
    wrong_wheels = [wheel for wheel in nvidia if _cuda(wheel) not in (None, version)]
    if wrong_wheels:
        raise _refusal(device, f"they need {', '.join(f'{wheel.name} {wheel.version}' for wheel in wrong_wheels)}")
    if not any(_cuda(wheel) == version for wheel in nvidia):
        raise _refusal(device, f"none of them is a CUDA {version} library")


def _cuda(wheel: Wheel) -> str | None:
    """Return CUDA's major version from the wheel's name or version; None where neither has it."""
    suffix = _SUFFIX.search(wheel.name)
    if suffix is not None:
        return suffix[1]
    return wheel.version.partition(".")[0] if wheel.name.startswith(_RUNTIME) else None


def _refusal(device: str, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"the wheels of the index are not for device {device}: {reason}",
        next_step=f"choose a version built for {device}, or another source of wheels, with such builds",
    )
