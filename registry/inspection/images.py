"""Whether an image's configuration says of each platform what its manifest says."""

from collections.abc import Callable

from msgspec import UNSET

from artifacts.digest import parse_digest
from artifacts.errors import InvalidInputError
from registry.configuration import Configuration, parse_configuration
from registry.inspection.content import Content
from registry.manifests import Image, Platform

Ask = Callable[[str, str, str], bytes | None]
"""The configuration of the image that a reference names, for an os and an arch; None where it cannot be looked up."""


def check_image(image: Image, content: Content) -> None:
    """Compare architecture, system and layers of each platform with its configuration.

    Raises:
        InvalidInputError: they differ, or the configuration is none.
    """
    for index, platform in enumerate(image.platforms):
        if platform.config is not UNSET:
            _check_config(platform, content, f"platforms[{index}]")


def check_finished(image: Image, ask: Ask, content: Content) -> None:
    """Compare architecture and system of each finished image with its configuration, where that can be looked up.

    Raises:
        InvalidInputError: they differ, or there is no such image.
    """
    for index, platform in enumerate(image.platforms):
        if platform.reference is UNSET:
            continue
        where = f"platforms[{index}]"
        try:
            text = ask(platform.reference, platform.os, platform.arch)
            found = None if text is None else parse_configuration(text)
        except InvalidInputError as error:
            raise content.error(error.what, f"{where}.reference", error.next_step) from error
        if found is not None:
            _check_made_for(platform, found, content, where)


def _check_config(platform: Platform, content: Content, where: str) -> None:
    with content.store.open(parse_digest(str(platform.config))) as stream:
        try:
            found = parse_configuration(stream.read())
        except InvalidInputError as error:
            raise content.error(error.what, f"{where}.config") from error
    _check_made_for(platform, found, content, where)
    declared = () if platform.layers is UNSET else platform.layers
    if declared != found.layers:
        raise content.error(
            f"the image has {len(found.layers)} layers, other than the {len(declared)} written here",
            f"{where}.layers",
            "write the digests of the uncompressed layers in the order of the configuration",
        )


def _check_made_for(platform: Platform, found: Configuration, content: Content, where: str) -> None:
    for key in ("os", "arch"):
        if getattr(platform, key) != getattr(found, key):
            raise content.error(
                f"the image is made for {getattr(found, key)}, not {getattr(platform, key)}",
                f"{where}.{key}",
                f"write {key}: {getattr(found, key)}",
            )
