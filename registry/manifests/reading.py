"""Manifests as authors write them."""

from registry.conversion import convert
from registry.manifests.checks import check
from registry.manifests.others import Manifest
from registry.yaml import read


def read_authored(text: bytes | str, name: str) -> Manifest:
    """The manifest in ``text``, YAML 1.2, checked as far as it can be without its files; ``name`` is for errors.

    Raises:
        InvalidInputError: at the first fault, with the path of the key (``inputs[0].steps[2].resize.size``) and
            the line.
    """
    document = read(text, name)
    manifest: Manifest = convert(document, Manifest)
    check(manifest, document, published=False)
    return manifest
