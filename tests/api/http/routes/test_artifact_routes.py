"""Artifacts over HTTP: pages, one version, and what a client has already."""

from collections.abc import Mapping
from itertools import chain, repeat

import msgspec
import pytest

from benchlock.api.http.service_state import CommitCache
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas.artifact_schemas import VersionDocument, VersionPage, decode_version_entry
from benchlock.artifacts.digest import digest_bytes
from benchlock.registry.artifact_names import Reference, parse_reference
from benchlock.registry.catalogue.catalogue_protocol import Entry
from tests.api.http.conftest import Client
from tests.support.registry.frameworks import publish_framework

VERSIONS = {"acme/ort": ("1.0.0", "1.1.0", "2.0.0-rc.1"), "ort": ("1.0.0+build.5",)}


@pytest.fixture
def shelf(registry: LocalRegistry) -> LocalRegistry:
    for name, versions in VERSIONS.items():
        for version in versions:
            publish_framework(registry.catalogue, registry.store, name, version)
    return registry


def test_pages_in_a_row_are_what_is_published(client: Client, shelf: LocalRegistry) -> None:
    found: list[Entry] = []
    query = "limit=3"
    while query:
        page = msgspec.json.decode(client.get(f"/v1/artifacts?{query}").content, type=VersionPage)
        found += map(decode_version_entry, page.artifacts)
        query = "" if page.next is msgspec.UNSET else f"limit=3&cursor={page.next}"
    assert tuple(found) == shelf.catalogue.list()


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize(
    ("query", "names"),
    [("kind=framework&name=ort", ["ort"]), ("namespace=acme", ["acme/ort"]), ("kind=model", []), ("name=nobody", [])],
)
def test_a_list_is_narrowed(client: Client, query: str, names: list[str]) -> None:
    page = client.get(f"/v1/artifacts?{query}").json()
    assert sorted({one["name"] for one in page["artifacts"]}) == names
    assert "next" not in page


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("framework=acme/ort", ["acme/ort"] * 3),
        ("search=ORT&namespace=acme&kind=framework", ["acme/ort"] * 3),
        ("search=ort", ["acme/ort"] * 3 + ["ort"]),
        ("task=regression", []),
        ("tag=slow", []),
    ],
)
def test_pages_of_a_search_are_what_matches(
    client: Client, shelf: LocalRegistry, query: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchlock.registry.catalogue.version_lists.EXAMINED", 2)
    monkeypatch.setattr("benchlock.registry.catalogue.version_lists.AT_ONCE", 2)
    found: list[Entry] = []
    step, sizes = f"{query}&limit=3", list[int]()
    while step:
        page = msgspec.json.decode(client.get(f"/v1/artifacts?{step}").content, type=VersionPage)
        found += map(decode_version_entry, page.artifacts)
        sizes.append(len(page.artifacts))
        step = "" if page.next is msgspec.UNSET else f"{query}&limit=3&cursor={page.next}"
    assert [entry.reference.name for entry in found] == names
    assert set(found) <= set(shelf.catalogue.list())
    assert max(sizes) <= 2
    assert len(sizes) > 1


@pytest.mark.parametrize(
    "query",
    [
        "task=classification",
        "framework=A",
        f"framework={'a' * 129}",
        "search=",
        f"search={'a' * 201}",
        "tag=",
        "tag=A",
        f"tag={'a' * 33}",
    ],
)
def test_a_malformed_search_is_refused(client: Client, query: str) -> None:
    answer = client.get(f"/v1/artifacts?{query}")
    assert (answer.status_code, answer.json()["code"]) in ((422, "invalid-input"), (400, "malformed"))


@pytest.mark.parametrize(
    ("target", "version"),
    [
        ("acme/ort@1.0.0", "1.0.0"),
        ("acme/ort@^1.0", "1.1.0"),
        ("acme/ort@latest", "1.1.0"),
        ("acme/ort@=2.0.0-rc.1", "2.0.0-rc.1"),
        ("ort@1.0.0", "1.0.0+build.5"),
        ("ort@1.0.0+other", "1.0.0+build.5"),
    ],
)
def test_one_version_comes_with_its_manifest(client: Client, shelf: LocalRegistry, target: str, version: str) -> None:
    answer = client.get(f"/v1/artifacts/framework/{target}")
    document = msgspec.json.decode(answer.content, type=VersionDocument)
    assert document.version == version
    assert digest_bytes(bytes(document.manifest)) == document.digest
    assert decode_version_entry(document) == shelf.catalogue.get(decode_version_entry(document).reference)
    assert answer.headers["etag"] == f'"{document.digest}"'


def test_what_the_client_has_is_not_sent_again_until_it_is_yanked(client: Client, shelf: LocalRegistry) -> None:
    path, catalogue = "/v1/artifacts/framework/acme/ort@1.0.0", shelf.catalogue
    tag = client.get(path).headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        again = client.get(path, headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    reference = parse_reference("framework/acme/ort@1.0.0")
    catalogue.yank(reference, "wrong weights")
    changed = client.get(path, headers={"if-none-match": tag})
    assert (changed.status_code, changed.json()["yanked"]) == (200, "wrong weights")
    assert changed.headers["etag"] != tag
    catalogue.unyank(reference)
    assert client.get(path, headers={"if-none-match": tag}).status_code == 304


def test_a_version_is_read_again_only_after_a_commit(
    client: Client, shelf: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, reference = "/v1/artifacts/framework/acme/ort@1.0.0", parse_reference("framework/acme/ort@1.0.0")
    reads: list[Reference] = []
    whole = shelf.catalogue.read

    def read(asked: Reference) -> tuple[Entry, str, Mapping[str, str]]:
        reads.append(asked)
        return whole(asked)

    monkeypatch.setattr(shelf.catalogue, "read", read)
    first = client.get(path)
    assert client.get(path).content == first.content
    assert reads == [reference]
    publish_framework(shelf.catalogue, shelf.store, "acme/other", "1.0.0")
    assert client.get(path).content == first.content
    assert reads == [reference] * 2
    for reason in ("wrong weights", "wrong labels"):
        shelf.catalogue.yank(reference, reason)
        assert client.get(path).json()["yanked"] == reason
    shelf.catalogue.unyank(reference)
    assert client.get(path).content == first.content
    assert reads == [reference] * 5


def test_the_newest_is_the_newest_again_as_soon_as_another_process_has_published_one(
    client: Client, shelf: LocalRegistry
) -> None:
    path = "/v1/artifacts/framework/acme/ort@latest"
    assert [client.get(path).json()["version"] for _ in range(3)] == ["1.1.0"] * 3
    publish_framework(shelf.catalogue, shelf.store, "acme/ort", "1.2.0")
    assert [client.get(path).json()["version"] for _ in range(3)] == ["1.2.0"] * 3


def test_what_was_read_holds_until_anyone_commits_and_the_oldest_goes_first() -> None:
    numbers = chain(repeat(7, 11), repeat(8))
    current = CommitCache(lambda: next(numbers), max_bytes=8 * (1024 + 2))
    _, number = current.get(0)
    for key in range(10):
        current.put(key, (b"{}", "tag"), number)
    assert [key for key in range(10) if current.get(key)[0]] == list(range(2, 10))
    assert current.get(9) == (None, 8)


def test_what_was_read_before_a_commit_is_not_kept_after_it() -> None:
    """One asks and reads, somebody commits, another asks, and only then the first has read."""
    numbers = iter([7, 8, 8])
    current = CommitCache(lambda: next(numbers), 1 << 20)
    _, number = current.get("one")
    current.get("two")
    current.put("one", (b"old", "tag"), number)
    assert current.get("one") == (None, 8)


def test_without_a_number_of_commits_nothing_is_kept() -> None:
    current = CommitCache(None, 1 << 20)
    _, number = current.get("one")
    current.put("one", (b"", "tag"), number)
    assert current.get("one")[0] is None


REFUSED = [
    ("framework/acme/ort@9.0.0", 404, "unknown-name"),
    ("framework/nobody@1.0.0", 404, "unknown-name"),
    ("framework/acme/ort@^7", 404, "unknown-name"),
    ("framework/acme/ort", 422, "invalid-input"),
    ("framework/acme/ort@", 422, "invalid-input"),
    ("framework/acme/ort@not a version", 422, "invalid-input"),
    ("framework/Acme/ort@1.0.0", 422, "invalid-input"),
    ("framework/%2e%2e/%2e%2e/etc@1.0.0", 422, "invalid-input"),
    ("framework/a%00b@1.0.0", 422, "invalid-input"),
    ("weights/acme/ort@1.0.0", 400, "malformed"),
]


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize(("target", "status", "code"), REFUSED)
def test_what_is_no_version_is_a_problem(client: Client, target: str, status: int, code: str) -> None:
    answer = client.get(f"/v1/artifacts/{target}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_page_that_cannot_be_is_a_problem(client: Client) -> None:
    for query in ("cursor=x", "cursor=WzFd", "limit=0", "limit=many", "kind=weights", "name=A", "namespace=a/b"):
        answer = client.get(f"/v1/artifacts?{query}")
        assert answer.status_code in (400, 422), query
        assert answer.json()["code"] in ("malformed", "invalid-input"), query
