"""The frameworks that images are built for: which distributions provide them, and what else an image needs."""

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.registry.manifests.others import PredictorName

HARNESS_REQUIREMENTS = (
    "mlcommons-loadgen==6.0.17",
    "numpy>=2,<3",
    "pillow",
    "pyarrow",
    "pycocotools>=2.0.10",
    "safetensors",
    "tokenizers",
)
"""What the harness imports; resolved together with the framework, so that both get versions that fit."""


@dataclass(frozen=True, slots=True)
class UpstreamFramework:
    """A framework as its makers publish it: its distributions, which of them a device needs, what drives it.

    ``devices`` are requirements, whose extras bring CUDA's libraries as wheels.
    """

    name: str
    predictor: PredictorName
    license: str
    distributions: tuple[str, ...]
    devices: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FrameworkChoice:
    """A framework, and the requirement that installs it on one device."""

    framework: UpstreamFramework
    distribution: str
    requirement: str


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


def choose(spec: str, device: str) -> FrameworkChoice:
    """What ``NAME==VERSION`` asks for on ``device``.

    Raises:
        InvalidInputError: another form, an unknown framework, or one that has no distribution for the device.
    """
    wanted = parse_requirement(spec)
    pins = [(clause.operator, clause.version) for clause in wanted.specifier]
    if len(pins) != 1 or any(operator != "==" or version.endswith(".*") for operator, version in pins) or wanted.extras:
        raise InvalidInputError(f"{spec!r} pins no framework version", next_step=f"write {wanted.name}==VERSION")
    framework = FRAMEWORKS.get(canonicalize_name(wanted.name))
    if framework is None:
        raise UnknownNameError(
            f"no framework is named {wanted.name!r}", next_step=f"choose one of {', '.join(sorted(FRAMEWORKS))}"
        )
    if device not in framework.devices:
        raise InvalidInputError(
            f"images of {framework.name} for device {device!r} are not built yet",
            next_step=f"choose one of {', '.join(sorted(framework.devices))}",
        )
    needed = Requirement(framework.devices[device])
    return FrameworkChoice(framework, needed.name, f"{framework.devices[device]}{wanted.specifier}")


def parse_requirement(text: str) -> Requirement:
    """A requirement that a package index can answer, so that its wheel can be fetched again by name and digest.

    Raises:
        InvalidInputError: it is none, or it is a direct reference.
    """
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise InvalidInputError(f"{text!r} is no requirement: {error}", next_step="write NAME==VERSION") from error
    if requirement.url:
        raise InvalidInputError(
            f"{text!r} names a URL", next_step="write NAME==VERSION, and give the wheel's folder as --find-links"
        )
    return requirement
