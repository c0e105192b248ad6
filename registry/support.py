"""What the formats can say and this version cannot run: refused when a lock is made, never guessed at."""

from collections.abc import Iterator

from msgspec import UNSET

from benchlock.registry.manifests import Image, Manifest, Model
from benchlock.registry.manifests.model import ImageInput
from benchlock.registry.requests import Request

_OLDEST_PYTHON = 11  # what the harness is written for, of Python 3


def unsupported(subject: Manifest | Request) -> tuple[str, ...]:
    """Why no lock can be made with ``subject`` yet: ``predictions: detection is not built yet``; empty if one can."""
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


def _request(request: Request) -> Iterator[str]:
    asked = request.asked
    if asked.trace not in (UNSET, "none"):
        yield f"trace: {asked.trace}"
