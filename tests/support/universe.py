"""Small catalogues as plain values, and questions over them: what a case file holds."""

from collections.abc import Mapping, Sequence
from typing import Any

from artifacts.digest import digest_bytes
from registry.constraints import Constraint
from registry.hardware import KEYS, Hardware
from registry.names import Kind, parse_target
from registry.resolver import Candidate, Offer, Question, Requirement
from registry.search import Preferences
from registry.versions import Version, parse_version


class Universe:
    """A snapshot that is a list; the order of its rows is that of ``candidates``."""

    def __init__(self, candidates: Sequence[Candidate]) -> None:
        self.candidates = list(candidates)

    def versions(self, kind: Kind, name: str) -> Sequence[Candidate]:
        return [one for one in self.candidates if (one.kind, one.name) == (kind, name)]

    def names(self, kind: Kind) -> Sequence[str]:
        return [one.name for one in self.candidates if one.kind == kind]

    def images_for(self, framework: str) -> Sequence[str]:
        return [one.name for one in self.candidates if one.provides and one.provides[0] == framework]


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
        hardware=Hardware.only(dict(zip(KEYS, request.get("hardware", "linux/amd64/cpu").split("/"), strict=True))),
    )


def _requirement(kind: Kind, text: str) -> Requirement:
    name, _, constraint = text.partition(" ")
    return Requirement(kind, name, Constraint.parse(constraint), "the request")


def preferences(chosen: Mapping[str, str]) -> Preferences:
    found: dict[tuple[Kind, str], Version] = {}
    for target, version in chosen.items():
        kind, name, _ = parse_target(target)
        found[kind, name] = parse_version(version)
    return found
