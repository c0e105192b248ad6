"""Images: built from wheels, published, and found for a model."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from benchlock.api.schemas.registry_protocol import Registry
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.images.build import Builder, BuildOptions, BuiltImage
from benchlock.evaluator.images.external_tools import workspace
from benchlock.registry.artifact_names import Name
from benchlock.registry.catalogue.catalogue_protocol import ContentFilter, Entry, PublishResult
from benchlock.registry.manifests import Image, plain
from benchlock.registry.publishing.drafts import Draft, read_draft
from benchlock.registry.publishing.publication import publish_if_missing, publish_successor
from benchlock.registry.versions.semantic_version import Version, parse_version
from benchlock.registry.versions.version_ranges import Constraint

Admits = Callable[[Version], bool]
"""Returns whether a version of the framework may be chosen."""


@dataclass(frozen=True, slots=True)
class PublishedImage:
    """A built image, and the results of publishing: of the image, then of its framework if that was missing."""

    built: BuiltImage
    results: tuple[PublishResult, ...]

    @property
    def framework(self) -> str:
        """The framework and its version: ``onnxruntime 1.31.1``."""
        return f"{self.built.framework.name} {self.built.framework.version}"


@dataclass(frozen=True, slots=True)
class ImageRequirement:
    """The environment that a run needs.

    Attributes:
        framework: The name of the framework.
        constraints: All constraints on its version.
        platform: The platform: os, arch and device.
        layers: Whether a container needs the layers of the image.
    """

    framework: Name
    constraints: tuple[Constraint, ...]
    platform: tuple[str, str, str]
    layers: bool

    def admits(self, version: Version) -> bool:
        """Return whether a version of the framework satisfies all constraints."""
        return all(constraint.admits(version) for constraint in self.constraints)

    def is_met_by(self, image: Image) -> bool:
        """Return whether an image provides the framework on the platform, with layers if they are needed."""
        return self.admits(parse_version(image.provides.version)) and any(
            (platform.os, platform.arch, platform.device) == self.platform
            and (platform.wheels is not UNSET or self.layers)
            and (not self.layers or platform.layers is not UNSET or platform.reference is not UNSET)
            for platform in image.platforms
        )

    def requirement(self) -> str:
        """Return the framework as a Python requirement: below the end of each constraint, for ``admits`` to decide."""
        ends = [constraint.range.hull.high for constraint in self.constraints if not constraint.range.is_empty()]
        clauses = (f"<{end.major}.{end.minor}.{end.patch}" for end in ends if end is not None)
        return f"{self.framework}{','.join(dict.fromkeys(clauses))}"


def build_image(
    registry: Registry,
    spec: str,
    options: BuildOptions,
    *,
    steps: Progress,
    transfers: Progress,
    admits: Admits | None = None,
) -> PublishedImage:
    """Build an image and publish it, and its framework if that is missing.

    Args:
        registry: The registry.
        spec: As for ``Builder.build``.
        options: The options of the build.
        steps: Shows the steps of the build.
        transfers: Shows the files that are published.
        admits: As for ``Builder.build``.
    """
    with workspace(registry.home / "builds") as folder:
        built = Builder(folder, registry.home / "bases", registry.store, steps).build(spec, options, admits)
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


def find_image(registry: Registry, need: ImageRequirement) -> Entry | None:
    """Return the newest published image that meets a need, yanked ones aside; None if there is none."""
    entries: Sequence[Entry] = registry.catalogue.list("image", ContentFilter(framework=need.framework))
    for entry in sorted(entries, key=lambda entry: entry.reference, reverse=True):
        if entry.yanked is None:
            manifest = registry.catalogue.manifest(entry.reference)
            if isinstance(manifest, Image) and need.is_met_by(manifest):
                return entry
    return None
