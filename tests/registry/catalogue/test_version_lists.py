"""Pages of versions, and the newest that a constraint admits, without reading them all."""

from collections.abc import Sequence
from itertools import product

import pytest
from msgspec.structs import replace

from benchlock.artifacts.errors import UnknownNameError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.artifact_names import parse_name, parse_reference
from benchlock.registry.catalogue import version_lists
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import ContentFilter, Entry, ListedVersion, Provenance
from benchlock.registry.catalogue.version_lists import VersionFilter
from benchlock.registry.manifests import Model
from benchlock.registry.versions.semantic_version import key
from benchlock.registry.versions.version_ranges import Constraint
from tests.support.registry.frameworks import publish_framework
from tests.support.resolution.variants import variant

pytestmark = pytest.mark.databases

SHELF = {
    "acme/a": ("1.0.0", "1.1.0", "2.0.0-rc.1"),
    "acme/b": ("0.1.0",),
    "b": ("1.0.0", "1.2.0", "1.10.0", "2.0.0", "3.0.0-beta.2", "3.0.0-beta.10"),
}
YANKED = ("framework/b@1.10.0", "framework/acme/a@1.1.0")


@pytest.fixture
def shelf(catalogue: Catalogue, store: LocalStore) -> Catalogue:
    for name, versions in SHELF.items():
        for version in versions:
            publish_framework(catalogue, store, name, version)
    for target in YANKED:
        catalogue.yank(parse_reference(target), "wrong")
    return catalogue


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_pages_in_a_row_are_the_whole_list(shelf: Catalogue, limit: int) -> None:
    found: list[ListedVersion] = []
    after = None
    while page := shelf.page(VersionFilter(after=after), limit):
        assert len(page) <= limit
        found += page
        after = page[-1].key
    assert [_listed(one) for one in shelf.list()] == found
    assert [f"{one.kind}/{one.name}@{one.version}" for one in found if one.yanked] == sorted(YANKED)


def _listed(entry: Entry) -> ListedVersion:
    of, says = entry.reference, (entry.digest, entry.published_at, entry.yanked)
    return ListedVersion(of.kind, of.name, key(of.version), str(of.version), *says)


@pytest.mark.parametrize(
    ("listing", "expected"),
    [
        (VersionFilter("framework", parse_name("b")), SHELF["b"]),
        (VersionFilter(name=parse_name("b")), SHELF["b"]),
        (VersionFilter(namespace="acme"), (*SHELF["acme/a"], *SHELF["acme/b"])),
        (VersionFilter("framework", namespace="acme", after=("framework", "acme/a", "~")), SHELF["acme/b"]),
        (VersionFilter("model"), ()),
    ],
)
def test_a_page_has_what_is_asked_for(shelf: Catalogue, listing: VersionFilter, expected: tuple[str, ...]) -> None:
    assert tuple(one.version for one in shelf.page(listing, 100)) == expected


ALTERNATIVES = ">=1.0 <1.5 || =2.0.0"
CONSTRAINTS = (None, "*", "^1.0", "<2.0.0", "=1.10.0", ">=3.0.0-beta.1", "^3.0.0-beta.3", ALTERNATIVES, "^9.0")


def admitted(versions: Sequence[Entry], constraint: Constraint | None) -> Sequence[Entry]:
    """Return the versions that may be the newest, oldest first."""
    if constraint is None:
        plain = [entry for entry in versions if entry.yanked is None and not entry.reference.version.prerelease]
        return plain or versions
    pinned = constraint.pinned is not None
    return [
        entry for entry in versions if constraint.admits(entry.reference.version) and (pinned or entry.yanked is None)
    ]


def test_the_newest_is_the_last_of_all_that_are_admitted(shelf: Catalogue) -> None:
    for name, text in product(SHELF, CONSTRAINTS):
        constraint = None if text is None else Constraint.parse(text)
        expected = admitted(shelf.versions("framework", parse_name(name)), constraint)
        if expected:
            assert shelf.newest("framework", parse_name(name), constraint) == expected[-1], (name, text)
        else:
            with pytest.raises(UnknownNameError, match="no version of"):
                shelf.newest("framework", parse_name(name), constraint)


def test_what_fits_and_is_yanked_is_named_when_nothing_else_fits(catalogue: Catalogue, store: LocalStore) -> None:
    for version in ("1.0.0", "1.1.0", "2.0.0"):
        publish_framework(catalogue, store, "x", version)
    for version in ("1.0.0", "1.1.0"):
        catalogue.yank(parse_reference(f"framework/x@{version}"), "wrong")
    name, constraint = parse_name("x"), Constraint.parse("^1.0")
    said = r"no version of .*, except yanked ones \(newest: 1.1.0\)"
    with pytest.raises(UnknownNameError, match=said) as caught:
        catalogue.newest("framework", name, constraint)
    assert "framework/x@1.1.0" in str(caught.value.next_step)


def test_where_all_are_yanked_or_pre_releases_the_newest_of_all_is_shown(
    catalogue: Catalogue, store: LocalStore
) -> None:
    for version in ("1.0.0", "1.1.0-rc.1"):
        publish_framework(catalogue, store, "x", version)
    catalogue.yank(parse_reference("framework/x@1.0.0"), "wrong")
    assert str(catalogue.newest("framework", parse_name("x"), None).reference.version) == "1.1.0-rc.1"


def test_a_name_of_which_nothing_is_published_is_unknown(shelf: Catalogue) -> None:
    with pytest.raises(UnknownNameError, match="unknown framework 'c'"):
        shelf.newest("framework", parse_name("c"), None)


@pytest.fixture
def contents(catalogue: Catalogue) -> Catalogue:
    """One version of every kind, and a second model with another task and a description."""
    manifests = [*variant({}).manifests.values()]
    model = next(one for one in manifests if isinstance(one, Model))
    tags = {"tags": ("vision", "edge")}
    manifests.append(replace(model, name="acme/tagger", task="tensor", description="Tags Pictures of DIGITS", **tags))
    for manifest in manifests:
        catalogue.publish(manifest, Provenance("", {}))
    return catalogue


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (ContentFilter(task="tensor"), ["model/acme/tagger"]),
        (ContentFilter(task="regression"), []),
        (ContentFilter(search="of digits"), ["model/acme/tagger"]),
        (ContentFilter(search="TAGGER"), ["model/acme/tagger"]),
        (ContentFilter(search="%"), []),
        (ContentFilter(search="VISI"), ["model/acme/tagger"]),
        (ContentFilter(tag="edge"), ["model/acme/tagger"]),
        (ContentFilter(tag="edg"), []),
        (ContentFilter(task="tensor", tag="vision"), ["model/acme/tagger"]),
        (ContentFilter(task="image-classification", tag="vision"), []),
        (
            ContentFilter(framework=parse_name("onnxruntime")),
            ["framework/onnxruntime", "image/onnxruntime-cpu", "model/acme/tagger", "model/digits"],
        ),
        (ContentFilter("tensor", parse_name("onnxruntime"), "pictures"), ["model/acme/tagger"]),
        (ContentFilter("tensor", parse_name("pytorch")), []),
        (ContentFilter("tensor", license="apache-2.0"), ["model/acme/tagger"]),
        (ContentFilter("tensor", license="apache"), []),
        (ContentFilter(platform="linux"), ["image/onnxruntime-cpu"]),
        (ContentFilter(platform="linux/amd64/cpu"), ["image/onnxruntime-cpu"]),
        (ContentFilter(platform="linux/amd"), []),
        (ContentFilter(platform="linux/amd64/cpu", search="digits"), []),
    ],
)
def test_versions_are_found_by_task_framework_and_text(
    contents: Catalogue, content: ContentFilter, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for at_once, examined in ((50, 2000), (2, 2)):
        monkeypatch.setattr(version_lists, "AT_ONCE", at_once)
        monkeypatch.setattr(version_lists, "EXAMINED", examined)
        found = contents.list(content=content)
        assert [f"{one.reference.kind}/{one.reference.name}" for one in found] == expected
        assert set(found) <= set(contents.list())
        assert contents.list("dataset", content) == ()


def test_a_search_reads_a_bounded_number_of_manifests(contents: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_lists, "AT_ONCE", 1)
    monkeypatch.setattr(version_lists, "EXAMINED", 2)
    page = contents.search(VersionFilter(content=ContentFilter(task="regression")), 100)
    assert page == ((), contents.page(VersionFilter(), 2)[-1].key)
