"""Whether an image's configuration says of each platform what its manifest says."""

import json

from msgspec import UNSET

from artifacts.digest import parse_digest
from registry.inspection.content import Content
from registry.manifests import Image, Platform


def check_image(image: Image, content: Content) -> None:
    """Compare architecture, system and layers of each platform with its configuration.

    Raises:
        InvalidInputError: they differ, or the configuration is none.
    """
    for index, platform in enumerate(image.platforms):
        if platform.config is not UNSET:
            _check_config(platform, content, f"platforms[{index}]")


def _check_config(platform: Platform, content: Content, where: str) -> None:
    with content.store.open(parse_digest(str(platform.config))) as stream:
        try:
            config = json.load(stream)
            layers = config["rootfs"]["diff_ids"]
            said = {"os": config["os"], "arch": config["architecture"]}
        except (ValueError, KeyError, TypeError) as error:
            raise content.error("the configuration is that of no image", f"{where}.config") from error
    for key, value in said.items():
        if getattr(platform, key) != value:
            raise content.error(
                f"the image is made for {value}, not {getattr(platform, key)}",
                f"{where}.{key}",
                f"write {key}: {value}",
            )
    declared = () if platform.layers is UNSET else platform.layers
    if list(declared) != layers:
        raise content.error(
            f"the image has {len(layers)} layers, other than the {len(declared)} written here",
            f"{where}.layers",
            "write the digests of the uncompressed layers in the order of the configuration",
        )
