"""What the text of a source names."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.sources import DvcSource, FileSource, FolderSource, HubSource, open_source


def test_paths_start_at_the_folder_of_the_manifest(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "a b.bin").write_bytes(b"")
    (tmp_path / "link").symlink_to("a b.bin")
    (tmp_path / "odd:name").write_bytes(b"")
    base = tmp_path / "images"
    assert open_source("../a b.bin", base) == FileSource(base / "../a b.bin")
    assert open_source("./link", tmp_path) == FileSource(tmp_path / "link")
    assert open_source("./odd:name", tmp_path) == FileSource(tmp_path / "odd:name")
    assert open_source("./images/", tmp_path) == FolderSource(tmp_path / "images")
    assert open_source(".", base) == FolderSource(base)
    assert open_source(str(tmp_path / "images"), Path("/nowhere")) == FolderSource(base)


def test_file_urls(tmp_path: Path) -> None:
    file = tmp_path / "a b%é.bin"
    file.write_bytes(b"")
    for url in (
        file.as_uri(),
        file.as_uri().replace("file:///", "FILE:/"),
        file.as_uri().replace("///", "//localhost/"),
    ):
        assert open_source(url, Path("/nowhere")) == FileSource(file)
    assert open_source(tmp_path.as_uri() + "/", Path("/nowhere")) == FolderSource(tmp_path)


@pytest.mark.parametrize(
    "source", ["file:a", "file://host/a", "file:///a?x", "file:///a#x", "file:", "file://[", "file:///nul%00"]
)
def test_file_urls_that_name_no_file(source: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_source(source, tmp_path)
    assert source in str(caught.value)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("missing.onnx", "missing.onnx not found"),
        ("./pipe", "neither a regular file nor a folder"),
        ("", "is not a path"),
        ("a\0b", "is not a path"),
        ("hf://org/name/labels.txt", "is not a file on the Hub"),
        ("hf://name@main/labels.txt", "is not a file on the Hub"),
        ("hf://org/name@main", "is not a file on the Hub"),
        ("hf://org/name@main/../labels.txt", r"has a part \. or \.\."),
        ("dvc://repo/model.onnx", "is not a file of a DVC repository"),
        ("dvc://ext::sh -c id@main/x", "is not a file of a DVC repository"),
        ("dvc://http://example.com/repo@main/x", "is not a file of a DVC repository"),
        ("dvc://https://user:secret@example.com/repo@main/x", "contains a user name or password"),
        ("dvc://ssh://git:secret@example.com/repo@main/x", "contains a password"),
        ("dvc://example.com/repo@main/../x", r"has a part \. or \.\."),
        ("s3://bucket/key", "unknown source scheme s3:"),
        ("odd:name", r"write a path \(./odd:name if it is one\)"),
        ("http://localhost/file", "is not an https: URL"),
        ("http://example.com/file", "is not an https: URL"),
        ("https://", "has no host"),
        ("https:///file", "has no host"),
        ("https://host:port/file", "invalid URL"),
        ("https://[::1/file", "invalid URL"),
        ("https://user:secret@host:99999/x", "invalid URL https://host:99999/x"),
        ("https://user:secret@[::1/x", "invalid URL"),
        ("https://user:se/cret-secret@host/x?token=secret", "invalid URL https://host/x"),
        ("ftp://user:secret@host/x?token=secret", "ftp://host/x: unknown source scheme ftp:"),
        ("hf://user:secret@hub/org/name", "hf://hub/org/name is not a file on the Hub"),
        ("file://user:secret@host/x", "file://host/x is not a file of this machine"),
        ("ftp://user:secret@[::1/x", "unknown source scheme ftp:"),
    ],
)
def test_what_is_no_source(source: str, reason: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInputError, match=reason) as caught:
        open_source(source, tmp_path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "kind", "name", "revision", "path"),
    [
        ("hf://org/name@main/a/b.onnx", "model", "org/name", "main", "a/b.onnx"),
        ("hf://datasets/org/name@v1.0/x", "dataset", "org/name", "v1.0", "x"),
        ("hf://spaces/org/na.me@" + "0" * 40 + "/x@y", "space", "org/na.me", "0" * 40, "x@y"),
        ("hf://org/name@refs%2Fpr%2F1/x", "model", "org/name", "refs/pr/1", "x"),
    ],
)
def test_files_on_the_hub(source: str, kind: str, name: str, revision: str, path: str) -> None:
    found = open_source(source, Path("/nowhere"))
    assert isinstance(found, HubSource)
    assert (found.kind, found.name, found.revision, found.path, str(found)) == (kind, name, revision, path, source)


@pytest.mark.parametrize(
    ("source", "repository", "revision", "path"),
    [
        ("dvc://example.com/org/repo@v1/m.onnx", "https://example.com/org/repo", "v1", "m.onnx"),
        ("dvc://https://example.com:8443/repo.git@v1/m", "https://example.com:8443/repo.git", "v1", "m"),
        ("dvc://ssh://git@example.com/repo@a%2Fb/data/", "ssh://git@example.com/repo", "a/b", "data/"),
        ("dvc:///srv/repo@v1/x@y", "/srv/repo", "v1", "x@y"),
        ("dvc://file:///srv/re%40po@v1/x", "/srv/re@po", "v1", "x"),
        ("dvc://../repo@v1/x", "/base/../repo", "v1", "x"),
    ],
)
def test_files_of_dvc_repositories(source: str, repository: str, revision: str, path: str) -> None:
    found = open_source(source, Path("/base"))
    assert isinstance(found, DvcSource)
    assert (found.repository, found.revision, found.path, str(found)) == (repository, revision, path, source)


def test_libraries_are_loaded_by_remote_sources_alone() -> None:
    script = (
        "import sys, benchlock.artifacts.sources.source_loader, benchlock.artifacts.file_trees\n"
        "sys.exit(bool({'httpx', 'huggingface_hub', 'dvc', 'urllib.request'} & set(sys.modules)))"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
