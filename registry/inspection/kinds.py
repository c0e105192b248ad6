"""What is looked at of each kind before it is published: everything that its files can bear out or contradict."""

from collections.abc import Callable

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.inspection.content import Content, UntakenError
from benchlock.registry.inspection.datasets import check_dataset
from benchlock.registry.inspection.images import Ask, check_finished, check_image
from benchlock.registry.inspection.models import check_model
from benchlock.registry.licences import check_license
from benchlock.registry.manifests import Dataset, Image, Manifest, Model
from benchlock.registry.problems import Problems


def inspect(
    manifest: Manifest, content: Content, problems: Problems, *, ask: Ask | None, warn: Callable[[str], None]
) -> None:
    """Hold a manifest against its files; what is wrong goes to ``problems``, what is odd to ``warn``.

    ``ask`` looks finished images up.
    """
    found = Problems()
    with found.noted():
        _check_license(manifest, content, warn)
    with found.noted():
        if isinstance(manifest, Dataset):
            check_dataset(manifest, content, found)
        elif isinstance(manifest, Model):
            check_model(manifest, content, found)
        elif isinstance(manifest, Image):
            check_image(manifest, content, found, warn=warn)
            if ask is not None:
                check_finished(manifest, content, found, ask)
    for error in found.found:
        if not isinstance(error, UntakenError):  # that file has a problem of its own, which says it
            problems.add(error)


def _check_license(manifest: Manifest, content: Content, warn: Callable[[str], None]) -> None:
    try:
        odd = check_license(manifest.license)
    except InvalidInputError as error:
        raise content.error(error.what, "license", error.next_step) from error
    if odd:
        warn(f"{odd} ({content.name})")
