"""Sources in a DVC repository that is made here: git, DVC, and a folder as its remote."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchlock.artifacts.blob_store import verify
from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.file_trees import TreeEntry, encode_listing
from benchlock.artifacts.sources import DvcSource, SourceAccess, fetch_file, fetch_tree, open_source, pin_revision
from benchlock.artifacts.stores.local_store import LocalStore
from tests.support.artifacts.repository import DvcRepository

WEIGHTS = random.Random(8).randbytes(2_500_000)
NEWER = random.Random(9).randbytes(100_000)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> DvcRepository:
    """Two commits: the first is the tag v1, the second the branch main; a branch with a slash; a folder of files."""
    made = DvcRepository(tmp_path_factory.mktemp("dvc"))
    made.commit({"net.onnx": WEIGHTS, "data/a.txt": b"a", "data/sub/b.txt": b"b"}, git={"labels.txt": b"cat\n"})
    made.git("tag", "v1")
    made.git("branch", "feature/x")
    made.commit({"net.onnx": NEWER})
    made.forget()
    return made


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def source(text: str, base: Path = Path("/nowhere")) -> DvcSource:
    found = open_source(text, base)
    assert isinstance(found, DvcSource)
    return found


def taken(text: str, content: bytes, store: LocalStore, base: Path = Path("/nowhere")) -> str:
    """Fetch what ``text`` names, which must be ``content``; the source as it is recorded."""
    digest = digest_bytes(content)
    found = pin_revision(source(text, base), digest, store)
    fetch_file(found, digest, store, name="file")
    with store.open(digest) as stream:
        assert stream.read() == content
    return str(found)


@pytest.mark.parametrize(
    ("revision", "name", "content"),
    [("v1", "v1", WEIGHTS), ("main", "main", NEWER), ("feature%2Fx", "v1", WEIGHTS), ("HEAD~1", "v1", WEIGHTS)],
)
def test_a_branch_or_tag_is_recorded_as_its_commit(
    repository: DvcRepository, store: LocalStore, revision: str, name: str, content: bytes
) -> None:
    commit = repository.git("rev-parse", name)
    assert taken(f"dvc://{repository.path}@{revision}/net.onnx", content, store) == (
        f"dvc://{repository.path}@{commit}/net.onnx"
    )


def test_all_files_of_one_publication_are_of_one_commit(tmp_path: Path) -> None:
    made, access, found = DvcRepository(tmp_path), SourceAccess(), list[str]()
    made.path.mkdir()
    made.git("init", "-q", "-b", "main")
    for path in ("a.txt", "b.txt"):
        made.git("commit", "-q", "--allow-empty", "-m", f"before {path}")
        one = open_source(f"dvc://{made.path}@main/{path}", Path("/nowhere"), access)
        assert isinstance(one, DvcSource)
        found.append(one.resolve().revision)
    assert found == [made.git("rev-parse", "main~1")] * 2


def test_a_commit_a_file_of_git_and_a_relative_repository(repository: DvcRepository, store: LocalStore) -> None:
    commit = repository.git("rev-parse", "v1")
    taken(f"dvc://{repository.path}@{commit}/labels.txt", b"cat\n", store)
    taken(f"dvc://file://{repository.path}@{commit}/net.onnx", WEIGHTS, store)
    assert taken(f"dvc://./repo@{commit}/data/sub/b.txt", b"b", store, repository.path.parent).startswith(
        "dvc://./repo@"
    )


def test_a_blob_that_is_there_needs_no_repository(repository: DvcRepository, store: LocalStore, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(repository.path, moved)
    text = f"dvc://{moved}@v1/labels.txt"
    taken(text, b"cat\n", store)
    shutil.rmtree(moved)
    assert taken(text, b"cat\n", store) == text


def test_what_broke_off_is_gone_on_with(repository: DvcRepository, store: LocalStore, tmp_path: Path) -> None:
    whole = source(f"dvc://{repository.path}@v1/net.onnx")
    with pytest.raises(InvalidInputError, match=f"is larger than {len(WEIGHTS) - 1} bytes"):
        fetch_file(whole, digest_bytes(WEIGHTS), store, name="x", size=len(WEIGHTS) - 1)
    with whole.open(2_000_000) as stream:
        assert stream.read() == WEIGHTS[2_000_000:]
    (tmp_path / "store" / "incoming" / f"{digest_bytes(WEIGHTS)[7:]}.part").write_bytes(WEIGHTS[:2_000_000])
    taken(f"dvc://{repository.path}@v1/net.onnx", WEIGHTS, store)


def tree(**files: bytes) -> Digest:
    entries = [
        TreeEntry(name.replace("__", "/").replace("_", "."), digest_bytes(content)[7:], len(content))
        for name, content in files.items()
    ]
    return digest_bytes(encode_listing(entries))


DATA = tree(a_txt=b"a", sub__b_txt=b"b")


def test_a_folder_is_a_tree(repository: DvcRepository, store: LocalStore) -> None:
    folder = source(f"dvc://{repository.path}@v1/data/")
    found, entries = fetch_tree(folder, DATA, store, name="data/")
    assert (found.digest, found.size) == (DATA, 2)
    assert [entry.path for entry in entries] == ["a.txt", "sub/b.txt"]
    for entry in entries:
        verify(store, entry.digest, name=entry.path)
    gone = source("dvc:///nowhere/at/all@v1/data/")
    assert fetch_tree(gone, DATA, store, name="data/") == (found, entries)
    store.delete(entries[0].digest)
    with pytest.raises(InvalidInputError, match="/nowhere/at/all not found"):
        fetch_tree(gone, DATA, store, name="data/")
    assert fetch_tree(folder, DATA, store, name="data/") == (found, entries)
    verify(store, entries[0].digest, name="a.txt")


def test_other_bytes_are_refused(repository: DvcRepository, store: LocalStore) -> None:
    with pytest.raises(IntegrityError, match=f"data/ .*{DATA}"):
        fetch_tree(source(f"dvc://{repository.path}@v1/data/"), tree(a_txt=b"A"), store, name="data/")
    digest = digest_bytes(WEIGHTS)
    with pytest.raises(IntegrityError, match=f"net.onnx .*{digest}"):
        fetch_file(source(f"dvc://{repository.path}@main/net.onnx"), digest, store, name="net.onnx")
    assert not store.exists(digest)


def test_damaged_bytes_in_the_remote_are_refused(repository: DvcRepository, store: LocalStore, tmp_path: Path) -> None:
    """DVC delivers them with success."""
    shutil.copytree(repository.path.parent, tmp_path / "damaged")
    for path in (tmp_path / "damaged" / "remote").rglob("*"):
        if path.is_file() and path.stat().st_size == len(WEIGHTS):
            path.chmod(0o644)
            path.write_bytes(WEIGHTS[:-1] + b"?")
    with pytest.raises(IntegrityError, match=f"expected {digest_bytes(WEIGHTS)}"):
        taken(f"dvc://{tmp_path}/damaged/repo@v1/net.onnx", WEIGHTS, store)


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("dvc://{0}@v9/net.onnx", InvalidInputError, "has no revision v9"),
        ("dvc://{0}@{1}/net.onnx", InvalidInputError, "has no revision 0000"),
        ("dvc://{0}@v1/no.onnx", InvalidInputError, "has no no.onnx at [0-9a-f]{40}"),
        ("dvc://{0}@v1/data", InvalidInputError, "is a folder"),
        ("dvc://{0}/data@v1/net.onnx", InvalidInputError, "/data not found"),
        ("dvc:///nowhere/at/all@v1/net.onnx", InvalidInputError, "/nowhere/at/all not found"),
        ("dvc://../gone@v1/net.onnx", InvalidInputError, "/nowhere/../gone not found"),
        ("dvc://localhost:9/repo@v1/net.onnx", UnavailableError, "cannot be read"),
    ],
)
def test_what_is_not_there(
    repository: DvcRepository, store: LocalStore, text: str, error: type[BenchlockError], match: str
) -> None:
    with pytest.raises(error, match=match):
        taken(text.format(repository.path, "0" * 40), WEIGHTS, store)
    assert list(store.list()) == []


def test_a_folder_without_git_has_no_commit(store: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "net.onnx").write_bytes(WEIGHTS)
    with pytest.raises(BenchlockError):
        taken(f"dvc://{tmp_path}/folder@main/net.onnx", WEIGHTS, store)


def test_bytes_that_nobody_pushed(repository: DvcRepository, store: LocalStore, tmp_path: Path) -> None:
    shutil.copytree(repository.path, tmp_path / "alone" / "repo")
    with pytest.raises(UnavailableError, match="cannot be read") as caught:
        taken(f"dvc://{tmp_path}/alone/repo@v1/net.onnx", WEIGHTS, store)
    assert "dvc push" in str(caught.value)


def test_what_is_cloned_is_removed_at_the_end(repository: DvcRepository, tmp_path: Path) -> None:
    """Only what is no folder of this machine is cloned; git itself would do that with this URL, too."""
    script = (
        "import sys; from benchlock.artifacts.sources import DvcSource\n"
        "found = DvcSource('here', sys.argv[1], 'v1', 'labels.txt').resolve()\n"
        "with found.open() as stream: print(found.revision, stream.read())"
    )
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3]), "TMPDIR": str(tmp_path / "tmp")}
    command = [sys.executable, "-c", script, f"file://{repository.path}"]
    said = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert said.stdout.strip() == f"{repository.git('rev-parse', 'v1')} b'cat\\n'"
    assert said.stderr == ""
    assert list((tmp_path / "tmp").iterdir()) == []


def test_without_dvc_the_message_says_what_to_install(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['dvc'] = None\n"
        "from pathlib import Path; from benchlock.artifacts.errors import UnavailableError\n"
        "from benchlock.artifacts.sources import *\n"
        "try: open_source('dvc:///repo@main/x', Path('/')).resolve()\n"
        "except UnavailableError as error: print(error)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", script]
    said = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "pip install 'benchlock[dvc]'" in said.stdout
