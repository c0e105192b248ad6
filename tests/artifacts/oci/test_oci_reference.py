"""How a repository and a manifest are written."""

import pytest

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.oci.oci_reference import Reference, Repository, parse_reference, parse_repository

DIGEST = digest_bytes(b"manifest")


@pytest.mark.parametrize(
    ("text", "repository", "url"),
    [
        ("oci://ghcr.io/acme/models", Repository("ghcr.io", "acme/models"), "https://ghcr.io/v2/acme/models"),
        ("ghcr.io/acme/a__b-c.d", Repository("ghcr.io", "acme/a__b-c.d"), "https://ghcr.io/v2/acme/a__b-c.d"),
        ("localhost/m", Repository("localhost", "m"), "https://localhost/v2/m"),
        ("registry:5000/m", Repository("registry:5000", "m"), "https://registry:5000/v2/m"),
        ("oci+http://[::1]:5000/m", Repository("[::1]:5000", "m", plain=True), "http://[::1]:5000/v2/m"),
        ("oci+http://localhost:5000/m", Repository("localhost:5000", "m", plain=True), "http://localhost:5000/v2/m"),
    ],
)
def test_repositories(text: str, repository: Repository, url: str) -> None:
    assert parse_repository(text) == repository
    assert repository.url == url
    assert parse_repository(str(repository)) == repository
    assert parse_reference(f"{text}@{DIGEST}") == Reference(repository, DIGEST)
    assert parse_reference(str(Reference(repository, DIGEST))) == Reference(repository, DIGEST)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("https://ghcr.io/m", "invalid OCI reference"),
        ("debian@" + DIGEST, "does not begin with a registry host"),
        ("library/debian", "does not begin with a registry host"),
        ("oci://ghcr.io", "does not begin with a registry host"),
        ("oci:///m", "does not begin with a registry host"),
        ("oci://ghcr.io/m:latest", "has a tag, and tags move"),
        ("oci://ghcr.io/M", "invalid repository of ghcr.io in oci://ghcr.io/M: use lower case"),
        ("oci://ghcr.io/a//b", "invalid repository of"),
        ("oci://ghcr.io/a/../b", "invalid repository of"),
        ("oci://ghcr.io/" + "a" * 300, "invalid repository of"),
        ("oci://ghcr.io/m?x=y", "invalid repository of"),
        ("oci://ghcr.io/m@sha256:12", "invalid digest"),
        ("oci://user:secret@ghcr.io/m", "invalid digest 'ghcr.io/m'"),
        ("https://user:secret@ghcr.io/m", "invalid OCI reference https://ghcr.io/m"),
        ("oci+http://ghcr.io/m", "is not encrypted, but ghcr.io is not this machine"),
        ("oci+http://127.0.0.1.example.org/m", "is not encrypted"),
        ("oci://[::1/m", "does not begin with a registry host"),
        ("oci://gh cr.io/m", "does not begin with a registry host"),
    ],
)
def test_what_is_no_reference(text: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason) as caught:
        parse_reference(text)
    assert "secret" not in str(caught.value)


def test_a_repository_is_no_manifest() -> None:
    with pytest.raises(InvalidInputError, match="is a manifest, not a repository"):
        parse_repository(f"ghcr.io/m@{DIGEST}")
