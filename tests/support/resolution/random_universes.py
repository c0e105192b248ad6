"""Small random catalogues, and questions and preferences over them."""

from hypothesis import strategies as st

from benchlock.artifacts.digest import digest_bytes
from benchlock.registry.artifact_names import Kind
from benchlock.registry.requests.hardware_requirements import Hardware
from benchlock.registry.resolution.resolver_types import Candidate, Offer, Question, Requirement
from benchlock.registry.versions.semantic_version import key, parse_version
from benchlock.registry.versions.version_ranges import Constraint

VERSIONS = ["1.0.0", "1.1.0", "1.2.0-rc.1", "1.2.0", "2.0.0-rc.1", "2.0.0"]
TEXTS = ["*", "^1", ">=1.1 <2", "<1.2", "=1.1.0", "1.2.0-rc.1", ">=1.2.0-rc.1", "^2", "!=1.2.0", "^1.1 || >=2.0.0-a"]
constraints = st.sampled_from(TEXTS).map(Constraint.parse)
versions = st.sampled_from(VERSIONS)
yanks = st.sampled_from([None, None, None, "bad"])
frameworks = st.sampled_from(["f", "g"])
DEVICES = ["cpu", "cuda"]
offers = st.lists(
    st.sampled_from([("linux", "amd64", device, python, True) for device in DEVICES for python in ("3.11", "3.12")]),
    min_size=1,
    max_size=3,
    unique=True,
)
PUBLISHED = digest_bytes(b"")


def _published(kind: Kind, name: str) -> st.SearchStrategy[list[Candidate]]:
    def candidate(
        version: str, yanked: str | None, need: tuple[str, str], provided: tuple[str, str], on: list[Offer]
    ) -> Candidate:
        return Candidate(
            kind=kind,
            name=name,
            version=parse_version(version),
            digest=PUBLISHED,
            yanked=yanked,
            requires=(("framework", *need),) if kind == "model" else (),
            provides=(provided[0], parse_version(provided[1])) if kind == "image" else None,
            platforms=tuple(sorted(on)) if kind == "image" else (),
        )

    needs = st.tuples(frameworks, st.sampled_from(TEXTS))
    one = st.builds(candidate, versions, yanks, needs, st.tuples(frameworks, versions), offers)
    return st.lists(one, max_size=4, unique_by=lambda one: key(one.version))


universes = st.tuples(
    _published("model", "m").filter(bool), _published("dataset", "d").filter(bool),
    _published("framework", "f"), _published("framework", "g"),
    _published("image", "i").filter(bool), _published("image", "j"),
).map(lambda parts: [one for part in parts for one in part])  # fmt: skip
questions = st.builds(
    lambda model, dataset, framework, image, prereleases, device: Question(
        Requirement("model", "m", model, "the request"),
        Requirement("dataset", "d", dataset, "the request"),
        framework,
        image and Requirement("image", "i", image, "the request"),
        prereleases,
        Hardware(("linux",), ("amd64",), device and (device,)),
    ),
    constraints,
    st.sampled_from(["*", "*", "^1"]).map(Constraint.parse),
    st.none() | constraints,
    st.none() | st.none() | constraints,
    st.sampled_from([frozenset[Kind](), frozenset[Kind]({"framework"}), frozenset[Kind]({"model", "image"})]),
    st.sampled_from([None, *DEVICES]),
)
preferred = st.dictionaries(
    st.sampled_from([("model", "m"), ("framework", "f"), ("image", "i"), ("image", "j"), ("dataset", "d")]),
    versions.map(parse_version),
    max_size=3,
)
