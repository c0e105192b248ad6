"""The search for versions that fit together: sound, complete, and the same whatever the order of rows.

Kinds are decided in the order of ``registry.candidates.ORDER``, each newest first, but what ``preferences`` name (the
choices of an existing lock) before all else. A dataset depends on nothing, so the search goes from model to framework
to image; models that require the same are tried once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from registry.candidates import Candidate, Need, Question, Requirement, Resolution, Snapshot
from registry.constraints import ANY, Constraint
from registry.names import Kind
from registry.versions import Version, key

Preferences = Mapping[tuple[Kind, str], Version]
Code = Literal["outside", "pre-release", "yanked", "platform", "framework", "no-image"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a candidate is out; ``by`` is the requirement that it does not meet."""

    code: Code
    by: Requirement | None = None


class Search:
    """One question over one snapshot. Each name is read once."""

    def __init__(self, question: Question, snapshot: Snapshot, preferences: Preferences) -> None:
        self.question = question
        self.snapshot = snapshot
        self.preferences = preferences
        self._versions: dict[tuple[Kind, str], tuple[Candidate, ...]] = {}
        self._environments: dict[Need, tuple[Candidate, Candidate] | None] = {}

    def asking(self, question: Question) -> "Search":
        """Another question over the same snapshot, with the same preferences."""
        other = Search(question, self.snapshot, self.preferences)
        other._versions = self._versions
        return other

    def find(self) -> Resolution | None:
        """The preferred resolution, or ``None``: there is none."""
        datasets = self.admitted((self.question.dataset,))
        if not datasets:
            return None
        for model in self.admitted((self.question.model,)):
            environment = self._environment(need_of(model))
            if environment is not None:
                framework, image = environment
                platforms = tuple(sorted(filter(self.question.hardware.admits, image.platforms)))
                return Resolution(model, framework, image, datasets[0], platforms)
        return None

    def versions(self, kind: Kind, name: str) -> tuple[Candidate, ...]:
        """All versions of the name: the preferred one, then newest first."""
        if (kind, name) not in self._versions:
            preferred = self.preferences.get((kind, name))
            found = sorted(self.snapshot.versions(kind, name), key=lambda one: key(one.version), reverse=True)
            self._versions[kind, name] = tuple(sorted(found, key=lambda one: one.version != preferred))
        return self._versions[kind, name]

    def admitted(self, requirements: Sequence[Requirement]) -> list[Candidate]:
        """The candidates that meet all of ``requirements``, which are of one name, in the order of choice."""
        kind, name = requirements[0].kind, requirements[0].name
        return [one for one in self.versions(kind, name) if self.reason(one, requirements) is None]

    def reason(self, candidate: Candidate, requirements: Sequence[Requirement]) -> Reason | None:
        """Why the candidate may not be chosen under ``requirements``, or ``None``.

        A yanked version may, if a requirement pins it exactly or the preferences name it.
        """
        version, allowed = candidate.version, candidate.kind in self.question.prereleases
        for requirement in requirements:
            if not requirement.constraint.admits(version, prereleases=allowed):
                inside = requirement.constraint.range.contains(version)
                return Reason("pre-release" if inside else "outside", requirement)
        kept = self.preferences.get((candidate.kind, candidate.name)) == version
        pinned = any(requirement.constraint.pinned == version for requirement in requirements)
        return None if candidate.yanked is None or kept or pinned else Reason("yanked")

    def framework_requirements(self, need: Need, asked_by: str) -> tuple[Requirement, ...]:
        """What the model asks of its framework, and the request's narrowing of it."""
        kind, name, text = need
        asked = (Requirement(kind, name, Constraint.parse(text), asked_by),)
        narrowed = self.question.framework
        return asked if narrowed is None else (*asked, Requirement(kind, name, narrowed, "the request"))

    def image_requirements(self, framework: str) -> tuple[Requirement, ...]:
        """One requirement for each image name that may provide the framework, in the order of choice.

        Without a name in the request: preferred names, names without a namespace, then by name.
        """
        if self.question.image is not None:
            return (self.question.image,)
        names = sorted(
            set(self.snapshot.images_for(framework)),
            key=lambda name: (("image", name) not in self.preferences, "/" in name, name),
        )
        return tuple(Requirement("image", name, ANY, "the request") for name in names)

    def image_reason(self, image: Candidate, requirement: Requirement, framework: str) -> Reason | None:
        """Why the image cannot be the environment of any version of the framework, or ``None``."""
        if image.provides is None or image.provides[0] != framework:
            return Reason("framework")
        if not any(self.question.hardware.admits(offer) for offer in image.platforms):
            return Reason("platform")
        return self.reason(image, (requirement,))

    def images(self, framework: str) -> Iterator[Candidate]:
        """The images that may provide some version of the framework, in the order of choice."""
        for requirement in self.image_requirements(framework):
            for image in self.versions("image", requirement.name):
                if self.image_reason(image, requirement, framework) is None:
                    yield image

    def _environment(self, need: Need) -> tuple[Candidate, Candidate] | None:
        if need not in self._environments:
            self._environments[need] = self._first_environment(need)
        return self._environments[need]

    def _first_environment(self, need: Need) -> tuple[Candidate, Candidate] | None:
        images: dict[str, Candidate] = {}
        for image in self.images(need[1]):
            assert image.provides is not None
            images.setdefault(key(image.provides[1]), image)
        for framework in self.admitted(self.framework_requirements(need, "the model")):
            if key(framework.version) in images:
                return framework, images[key(framework.version)]
        return None


def need_of(model: Candidate) -> Need:
    """The one framework that a model requires."""
    (need,) = model.requires
    return need
