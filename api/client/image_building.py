"""Images: built from wheels and published."""

import json
from dataclasses import dataclass

from benchlock.api.schemas.registry_protocol import Registry
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.images.build import Builder, BuildOptions, BuiltImage
from benchlock.evaluator.images.external_tools import workspace
from benchlock.registry.catalogue.catalogue_protocol import PublishResult
from benchlock.registry.manifests import plain
from benchlock.registry.publishing.drafts import Draft, read_draft
from benchlock.registry.publishing.publication import publish_if_missing, publish_successor


@dataclass(frozen=True, slots=True)
class PublishedImage:
    """A built image, and the results of publishing: of the image, then of its framework if that was missing."""

    built: BuiltImage
    results: tuple[PublishResult, ...]


def build_image(
    registry: Registry, spec: str, options: BuildOptions, *, steps: Progress, transfers: Progress
) -> PublishedImage:
    """Build an image and publish it, and its framework if that is missing.

    Args:
        registry: The registry.
        spec: As for ``Builder.build``.
        options: The options of the build.
        steps: Shows the steps of the build.
        transfers: Shows the files that are published.
    """
    with workspace(registry.home / "builds") as folder:
        built = Builder(folder, registry.home / "bases", registry.store, steps).build(spec, options)
        draft, upstream = _drafts(built)
        image = publish_successor(draft, registry.store, registry.catalogue, progress=transfers)
        framework = publish_if_missing(upstream, registry.store, registry.catalogue)
    return PublishedImage(built, (image,) if framework is None else (image, framework))


def _drafts(built: BuiltImage) -> tuple[Draft, Draft]:
    """Return the manifests as drafts whose relative sources start in the build's folder."""
    paths = [built.folder / f"{manifest.kind}.yaml" for manifest in (built.image, built.framework)]
    texts = [json.dumps(plain(manifest), indent=2, ensure_ascii=False) for manifest in (built.image, built.framework)]
    image, framework = (read_draft(text, str(path), path) for text, path in zip(texts, paths, strict=True))
    return image, framework
