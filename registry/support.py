"""What the formats can say and this version cannot run: refused when a lock is made, never guessed at."""

from collections.abc import Iterator

from msgspec import UNSET

from registry.manifests.model import ImageInput, Input, Model, Output
from registry.manifests.others import Image, Manifest
from registry.manifests.steps import Step
from registry.metrics import BUILT as METRICS
from registry.requests import Request

FIELDS = frozenset(("image",))
OUTPUTS = frozenset(("class-scores", "class-index", "tensor", "value", "boxes", "box-scores", "mask"))
STEPS = frozenset((
    "decode", "resize", "center_crop", "cast", "scale", "normalize", "transpose", "reshape", "pad", "quantize",
    "dequantize", "python", "resample", "frame", "spectrogram", "mfcc", "tokenize",
    "softmax", "sigmoid", "argmax", "topk",
))  # fmt: skip
_OLDEST_PYTHON = 11  # what the harness is written for, of Python 3
SCENARIOS = frozenset(("accuracy", "single_stream"))


def unsupported(subject: Manifest | Request) -> tuple[str, ...]:
    """Why no lock can be made with ``subject`` yet: ``inputs[0].type: audio is not built yet``; empty if one can."""
    if isinstance(subject, Model):
        return tuple(f"{reason} is not built yet" for reason in _model(subject))
    if isinstance(subject, Image):
        return tuple(f"platforms[{index}].{reason} is not built yet" for index, reason in _platforms(subject))
    if isinstance(subject, Request):
        return tuple(f"{reason} is not built yet" for reason in _request(subject))
    return ()


def _platforms(image: Image) -> Iterator[tuple[int, str]]:
    for index, platform in enumerate(image.platforms):
        if platform.reference is not UNSET and int(platform.python.partition(".")[2]) < _OLDEST_PYTHON:
            yield index, f"python: a finished image with Python {platform.python}"


def _model(model: Model) -> Iterator[str]:
    if model.predictions is not UNSET and not any(isinstance(port, ImageInput) for port in model.inputs):
        yield "predictions: boxes without an input of type image"
    for index, port in enumerate(model.inputs):
        yield from _input(port, f"inputs[{index}]")
    for index, output in enumerate(model.outputs):
        yield from _output(output, f"outputs[{index}]")


def _input(port: Input, where: str) -> Iterator[str]:
    if not isinstance(port, ImageInput):
        yield f"{where}.type: {port.type}"
        return
    if port.field is not UNSET and port.field not in FIELDS:
        yield f"{where}.field: a field other than image"
    yield from _steps(port.steps, where)


def _output(output: Output, where: str) -> Iterator[str]:
    if output.type not in OUTPUTS:
        yield f"{where}.type: {output.type}"
    if output.reduce is not UNSET:
        yield f"{where}.reduce: a sample of several calls"
    yield from _steps(() if output.steps is UNSET else output.steps, where)


def _steps(steps: tuple[Step, ...], where: str) -> Iterator[str]:
    for index, step in enumerate(steps):
        if step.name not in STEPS:
            yield f"{where}.steps[{index}]: {step.name}"


def _request(request: Request) -> Iterator[str]:
    asked = request.asked
    if request.scenario.name not in SCENARIOS:
        yield f"scenario.name: {request.scenario.name}"
    if asked.trace not in (UNSET, "none"):
        yield f"trace: {asked.trace}"
    for metric in request.metrics:
        if metric not in METRICS:
            yield f"metrics: {metric}"
