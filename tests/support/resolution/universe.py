"""Small catalogues as plain values, and questions over them: what a case file holds."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from benchlock.artifacts.digest import digest_bytes
from benchlock.registry.artifact_names import Kind, parse_target
from benchlock.registry.requests.hardware_requirements import Hardware
from benchlock.registry.resolution.admitted_versions import Preferences
from benchlock.registry.resolution.resolver_types import (
    COUNTED,
    Candidate,
    Environments,
    Extent,
    Need,
    Offer,
    Platform,
    Population,
    Question,
    Requirement,
)
from benchlock.registry.versions.semantic_version import Version, key, parse_version
from benchlock.registry.versions.version_ranges import Constraint, Interval


class Universe:
    """A snapshot that is a list; the order of its rows is that of ``candidates``."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.rows = list(candidates)

    def names(self, kind: Kind, near: str, limit: int) -> Sequence[str]:
        names = sorted({one.name for one in self.rows if one.kind == kind})
        place = bisect_left(names, near)
        return names[max(0, place - limit) : place + limit]

    def needs(self, model: str) -> Sequence[Need]:
        return sorted({need for one in self.of("model", model) for need in one.requires})

    def needed(self, population: Population) -> Sequence[tuple[Need, str]]:
        found: dict[Need, str] = {}
        for one in self._population(population):
            for need in one.requires:
                found.setdefault(need, key(one.version))
        return sorted(found.items())

    def newest(self, population: Population, limit: int) -> Sequence[Version]:
        return [one.version for one in self._population(population)][:limit]

    def oldest(self, population: Population, limit: int) -> Sequence[Version]:
        return [one.version for one in reversed(self._population(population))][:limit]

    def extent(self, population: Population) -> Extent | None:
        found = self._population(population)
        return Extent(min(len(found), COUNTED), found[-1].version, found[0].version) if found else None

    def candidates(self, kind: Kind, name: str, versions: tuple[Version, ...]) -> Sequence[Candidate]:
        found = {key(one.version): one for one in self.of(kind, name)}
        return [found[key(one)] for one in versions if key(one) in found]

    def platforms(self, framework: str) -> Sequence[Platform]:
        images = (one for one in self.rows if one.provides and one.provides[0] == framework)
        return sorted({offer[:3] for one in images for offer in one.platforms})

    def images(self, framework: str) -> Sequence[str]:
        return sorted({one.name for one in self.rows if one.provides and one.provides[0] == framework})

    def provided(self, environments: Environments) -> Version | None:
        found = {key(version): version for _, version in self._environments(environments)}
        return found[max(found)] if found else None

    def providers(self, environments: Environments) -> Sequence[tuple[str, Version]]:
        found = sorted((image.name, key(image.version), image.version) for image, _ in self._environments(environments))
        return sorted({name: version for name, _, version in found}.items())

    def of(self, kind: Kind, name: str) -> list[Candidate]:
        return [one for one in self.rows if (one.kind, one.name) == (kind, name)]

    def _population(self, wanted: Population) -> list[Candidate]:
        found = [
            one
            for one in self.of(wanted.kind, wanted.name)
            if _inside(one.version, wanted.interval)
            and wanted.status in (None, one.status)
            and (wanted.need is None or wanted.need in one.requires)
        ]
        return sorted(found, key=lambda one: key(one.version), reverse=True)

    def _environments(self, wanted: Environments) -> list[tuple[Candidate, Version]]:
        """Images, and the published version of the framework that each provides."""
        frameworks = {
            key(one.version): one.version
            for one in self.of("framework", wanted.framework)
            if one.status == wanted.status and _inside(one.version, wanted.interval)
        }
        return [
            (one, frameworks[key(one.provides[1])])
            for one in self.rows
            if one.provides is not None
            and one.provides[0] == wanted.framework
            and key(one.provides[1]) in frameworks
            and wanted.platform in [offer[:3] for offer in one.platforms]
            and wanted.image in (None, one.name)
            and one.status == wanted.image_status
            and _inside(one.version, wanted.images)
        ]


def _inside(version: Version, interval: Interval) -> bool:
    return interval.low_key <= key(version) and (interval.high is None or key(version) < interval.high_key)


def candidates(index: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[Candidate]:
    """``{"image/x": {"1.0.0": {"provides": "onnxruntime 1.20.0", "platforms": ["linux/amd64/cpu"]}}, …}``."""
    return [_candidate(target, version, row) for target, versions in index.items() for version, row in versions.items()]


def _candidate(target: str, version: str, row: Mapping[str, Any]) -> Candidate:
    kind, name, _ = parse_target(target)
    requires = [(parse_target(wanted)[:2], text) for wanted, text in row.get("requires", {}).items()]
    framework, _, provided = row.get("provides", "").partition(" ")
    return Candidate(
        kind=kind,
        name=name,
        version=parse_version(version),
        digest=digest_bytes(f"{target}@{version}".encode()),
        yanked=row.get("yanked"),
        requires=tuple((*wanted, text) for wanted, text in requires),
        provides=(framework, parse_version(provided)) if framework else None,
        platforms=tuple(_offer(text) for text in row.get("platforms", ())),
    )


def _offer(text: str) -> Offer:
    os, arch, device = text.split("/")
    return (os, arch, device, "3.11", True)


def question(request: Mapping[str, Any]) -> Question:
    """``{"model": "x ^1", "dataset": "y *", "framework": "<2", "image": "z ^1", "hardware": "linux/amd64/cpu"}``."""
    image = request.get("image")
    return Question(
        model=_requirement("model", request["model"]),
        dataset=_requirement("dataset", request["dataset"]),
        framework=Constraint.parse(request["framework"]) if "framework" in request else None,
        image=None if image is None else _requirement("image", image),
        prereleases=frozenset(request.get("prereleases", ())),
        accelerated=request.get("accelerated", False),
        hardware=_hardware(request.get("hardware", "linux/amd64/cpu")),
    )


def _hardware(text: str) -> Hardware:
    """``linux/amd64/cuda11,cuda12``; ``*`` is any."""
    return Hardware(*(None if part == "*" else tuple(part.split(",")) for part in text.split("/")))


def _requirement(kind: Kind, text: str) -> Requirement:
    name, _, constraint = text.partition(" ")
    return Requirement(kind, name, Constraint.parse(constraint), "the request")


def preferences(chosen: Mapping[str, str]) -> Preferences:
    found: dict[tuple[Kind, str], Version] = {}
    for target, version in chosen.items():
        kind, name, _ = parse_target(target)
        found[kind, name] = parse_version(version)
    return found
