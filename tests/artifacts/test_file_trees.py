"""Trees: what their digest covers, and what is refused."""

import hashlib
import io
import json
import os
import socket
import tracemalloc
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlock.artifacts.blob_store import read
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.file_trees import (
    TreeEntry,
    check_collisions,
    check_path,
    encode_listing,
    iterate_tree,
    parse_listing,
    put_tree,
    read_tree,
    verify_tree,
    walk_tree,
)
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import Advance

CASES = Path(__file__).parents[1] / "cases" / "trees"
EMPTY = hashlib.sha256(b"").hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    return folder


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def fill(folder: Path, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)


class Watched:
    """Keeps the tasks it is told of, with the sum of their steps."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, int | None, int]] = []

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Advance]:
        steps: list[int] = []
        yield steps.append
        self.tasks.append((label, total, sum(steps)))


def test_golden_listing(folder: Path, store: LocalStore) -> None:
    """The bytes and digest that were written down by hand, with sha256sum for the digests."""
    expected = (CASES / "listing.json").read_bytes()
    digest = (CASES / "listing.sha256").read_text().split()[0]
    fill(
        folder,
        {
            "a/b": b"one\n",
            "a.txt": b"two\n",
            "a0": b"",
            "Z": b"three\n",
            "é": b"four\n",
            "\ufb33": b"5\n",
            "😀": b"6\n",
        },
    )

    tree, entries = put_tree(store, folder)

    assert read(store, tree.digest, name="listing") == expected
    assert tree == Descriptor(Digest(f"sha256:{digest}"), 23)
    assert [entry.path for entry in entries] == ["Z", "a.txt", "a/b", "a0", "é", "\ufb33", "😀"]
    assert parse_listing(expected, "images/") == entries == read_tree(store, tree, name="images/")


def test_the_digest_knows_no_modes_times_links_or_empty_folders(
    folder: Path, tmp_path: Path, store: LocalStore
) -> None:
    fill(folder, {"a/x": b"1", "b": b"2"})
    tree, _ = put_tree(store, folder)
    other = tmp_path / "elsewhere"
    other.mkdir()
    fill(other, {"b": b"2", "a/x": b"1"})
    (other / "a" / "x").chmod(0o700)
    (other / "empty" / "deeper").mkdir(parents=True)
    os.utime(other / "b", (1, 1))
    (tmp_path / "link").symlink_to(other)

    assert put_tree(store, other)[0] == tree
    assert put_tree(store, tmp_path / "link")[0] == tree
    (other / "b").write_bytes(b"3")
    assert put_tree(store, other)[0] != tree


def test_the_manifest_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(folder, {"manifest.yaml": b"schema: 1", "a/manifest.yaml": b"kept", "b": b""})
    monkeypatch.chdir(folder)
    for exclude in (folder / "manifest.yaml", Path("manifest.yaml"), folder / "a" / ".." / "manifest.yaml"):
        assert [path for path, _ in walk_tree(folder, exclude=exclude)] == ["a/manifest.yaml", "b"]


def test_a_tree_without_files_is_refused(folder: Path) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(InvalidInputError, match="contains no files"):
        walk_tree(folder)
    fill(folder, {"manifest.yaml": b""})
    with pytest.raises(InvalidInputError, match="contains no files"):
        walk_tree(folder, exclude=folder / "manifest.yaml")


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        os.chdir(path.parent)  # a socket's path is short
        listening.bind(path.name)


SPECIAL: dict[str, tuple[str, Callable[[Path], object]]] = {
    "link": ("a symbolic link", lambda path: path.symlink_to(path.parent / "a")),
    "link to a folder": ("a symbolic link", lambda path: path.symlink_to(path.parent, target_is_directory=True)),
    "dangling link": ("a symbolic link", lambda path: path.symlink_to("nowhere")),
    "pipe": ("a special file", os.mkfifo),
    "socket": ("a special file", make_socket),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_links_and_special_files_are_refused_by_name(
    folder: Path, store: LocalStore, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)  # and back
    fill(folder, {"sub/a": b"1"})
    called, make = SPECIAL[kind]
    make(folder / "sub" / "odd")
    with pytest.raises(InvalidInputError, match=f"sub/odd is {called}"):
        put_tree(store, folder)
    assert list(store.list()) == []


COLLISIONS = {
    "case": ("a/Cat.png", "a/cat.PNG"),
    "normal form": (unicodedata.normalize("NFC", "é.png"), unicodedata.normalize("NFD", "é.png")),
    "order of marks": ("\u0391\u0301\u0345", "\u0391\u0345\u0301"),  # folding U+0345 first would part them
    "sharp s": ("straße", "STRASSE"),
    "folders": ("Cats/1.png", "cats/2.png"),
    "a file and a folder": ("cats", "CATS/1.png"),
}


@pytest.mark.parametrize("kind", COLLISIONS)
def test_names_that_collide_elsewhere_are_refused(folder: Path, kind: str) -> None:
    fill(folder, dict.fromkeys(COLLISIONS[kind], b""))
    with pytest.raises(InvalidInputError, match="are the same name on some file systems"):
        walk_tree(folder)


def test_names_that_differ_do_not_collide() -> None:
    check_collisions(["a/b", "a/c", "ab", "b/a", "e", "é", "ss"])
    with pytest.raises(InvalidInputError, match=r"'a/' and 'a'|'a' and 'a/'"):
        check_collisions(["a/b", "a"])


@pytest.mark.parametrize(
    ("name", "reason"),
    [(b"latin-\xe9", "is not UTF-8"), (b"two\nlines", "has a control character"), (b"back\\slash", "has a backslash")],
)
def test_names_that_other_systems_cannot_hold_are_refused(folder: Path, name: bytes, reason: str) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(b"")
    with pytest.raises(InvalidInputError, match=reason):
        walk_tree(folder)


@pytest.mark.parametrize("path", ["a", "a/b.c", ".hidden", "a b/…", "..a", "a..", "x" * 255, "é/" + "é" * 127])
def test_paths(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "a/../b",
        "./a",
        "a/.",
        "a\\b",
        "a\0b",
        "a\x7f",
        "\ud800",
        "x" * 256,
        "é" * 128,
    ],
)
def test_paths_that_mean_something_else_are_refused(path: str) -> None:
    with pytest.raises(InvalidInputError, match="the path"):
        check_path(path)


def test_progress_counts_bytes(folder: Path, store: LocalStore) -> None:
    fill(folder, {"a": b"12345", "b/c": b"67"})
    watched = Watched()
    tree, _ = put_tree(store, folder, progress=watched)
    verify_tree(store, tree, name="images/", progress=watched)
    assert watched.tasks == [("storing images/", 7, 7), ("verifying images/", 7, 7)]


def test_many_files(folder: Path, store: LocalStore) -> None:
    files = {f"{number % 7}/{number}.png": bytes([number % 251]) * number for number in range(300)}
    fill(folder, files)
    watched = Watched()
    tree, entries = put_tree(store, folder, progress=watched)
    assert watched.tasks == [("storing images/", 44850, 44850)]
    assert {entry.path: entry.digest for entry in entries} == {path: digest_bytes(files[path]) for path in files}
    assert verify_tree(store, tree, name="images/") == entries


def test_verify_names_the_file_in_the_tree(folder: Path, store: LocalStore) -> None:
    fill(folder, {"cat/1.png": b"meow", "dog/2.png": b"woof"})
    tree, entries = put_tree(store, folder)
    assert verify_tree(store, tree, name="images/") == entries

    damaged = store.path(digest_bytes(b"meow"))
    damaged.chmod(0o644)
    damaged.write_bytes(b"meoW")
    with pytest.raises(IntegrityError) as caught:
        verify_tree(store, tree, name="images/")
    for part in ("images/cat/1.png", digest_bytes(b"meow"), digest_bytes(b"meoW")):
        assert part in str(caught.value)

    store.delete(digest_bytes(b"meow"))
    with pytest.raises(IntegrityError, match=r"images/cat/1\.png is missing"):
        verify_tree(store, tree, name="images/")
    put_tree(store, folder)
    assert verify_tree(store, tree, name="images/") == entries


def test_verify_covers_the_listing(folder: Path, store: LocalStore) -> None:
    fill(folder, {"a": b"12345"})
    tree, _ = put_tree(store, folder)
    with pytest.raises(IntegrityError, match="the files of images/ have 5 bytes, but 6 are stated"):
        verify_tree(store, Descriptor(tree.digest, 6), name="images/")
    with pytest.raises(InvalidInputError, match="the listing of the tree images/ is malformed"):
        verify_tree(store, Descriptor(digest_bytes(b"12345"), 5), name="images/")

    lie = store.put(io.BytesIO(encode_listing([TreeEntry("a", to_hex(digest_bytes(b"12345")), 4)])))
    with pytest.raises(IntegrityError, match="images/a has 5 bytes, but 4 are stated"):
        verify_tree(store, Descriptor(lie.digest, 4), name="images/")

    listing = store.path(tree.digest)
    listing.chmod(0o644)
    listing.write_bytes(listing.read_bytes().replace(b'"a"', b'"b"'))
    with pytest.raises(IntegrityError, match=f"the listing of images/ does not match .*{tree.digest}"):
        verify_tree(store, tree, name="images/")
    store.delete(tree.digest)
    with pytest.raises(IntegrityError, match="the listing of images/ is missing"):
        verify_tree(store, tree, name="images/")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([["b", EMPTY, 0], ["a", EMPTY, 0]], "not sorted"),
        ([["a", EMPTY, 0], ["a", EMPTY, 0]], "duplicate path"),
        ([["a", EMPTY, 0], ["a", EMPTY, 1]], "duplicate path"),
        ([["a", EMPTY, -1]], "negative"),
        ([["a", EMPTY, 0, 0]], "length"),
        ([["a", EMPTY]], "length"),
        ([["a", EMPTY, "0"]], "Expected `int`"),
        ([["a", EMPTY, True]], "Expected `int`"),
        ([["a", EMPTY, 2**60]], "canonical"),
        ([["a", "sha256:" + EMPTY, 0]], "invalid SHA-256"),
        ([["a", EMPTY.upper(), 0]], "invalid SHA-256"),
        ([["../a", EMPTY, 0]], r"a part \. or \.\."),
        ([["/a", EMPTY, 0]], "absolute"),
        ([["A", EMPTY, 0], ["a", EMPTY, 0]], "the same name"),
        ([["a", EMPTY, 0], ["a/b", EMPTY, 0]], "the same name"),
        ({"a": EMPTY}, "Expected `array`"),
    ],
)
def test_listings_that_are_none(rows: object, reason: str) -> None:
    content = json.dumps(rows, separators=(",", ":")).encode()
    with pytest.raises(InvalidInputError, match=f"the listing of the tree images/ is malformed: .*{reason}"):
        parse_listing(content, "images/")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b'[["\xff","' + EMPTY.encode() + b'",0]]',
        b'[["a",',
        b'[["\\ud800","' + EMPTY.encode() + b'",0]]',
        b'[["a", "' + EMPTY.encode() + b'", 0]]',
        b'[["a","' + EMPTY.encode() + b'",0.0]]',
        b'[["\\u0061","' + EMPTY.encode() + b'",0]]',
        b"[" * 100_000,
    ],
)
def test_bytes_that_are_no_listing(content: bytes) -> None:
    with pytest.raises(InvalidInputError, match="the listing of the tree images/ is malformed"):
        parse_listing(content, "images/")


@given(
    st.dictionaries(
        st.lists(st.text("ab.é😀\ufb33", min_size=1, max_size=3), min_size=1, max_size=3).map("/".join),
        st.tuples(st.binary(max_size=3), st.integers(0, 2**53 - 1)),
        max_size=6,
    ),
    st.randoms(),
)
def test_a_listing_says_all_and_in_one_order(files: dict[str, tuple[bytes, int]], random: Random) -> None:
    entries = [TreeEntry(path, to_hex(digest_bytes(content)), size) for path, (content, size) in files.items()]
    try:
        for entry in entries:
            check_path(entry.path)
        check_collisions(entry.path for entry in entries)
    except InvalidInputError:
        return
    random.shuffle(entries)

    content = encode_listing(entries)

    assert set(parse_listing(content, "tree")) == set(entries)
    paths = [row[0].encode() for row in json.loads(content)]
    assert paths == sorted(paths)


def collides_naively(paths: list[str]) -> bool:
    """Compare every beginning of every path with all others."""
    spellings: dict[str, str] = {}
    for path in paths:
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            name = "/".join(parts[:depth])
            spelling = name if depth == len(parts) else name + "/"
            folded = unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())
            if spellings.setdefault(folded, spelling) != spelling:
                return True
    return False


PARTS = st.text("aAbéE\u0301\ufb33.-", min_size=1, max_size=2)


@given(st.lists(st.lists(PARTS, min_size=1, max_size=4).map("/".join), max_size=8))
def test_neighbours_show_every_collision(paths: list[str]) -> None:
    if collides_naively(paths):
        with pytest.raises(InvalidInputError, match="are the same name on some file systems"):
            check_collisions(paths)
    else:
        check_collisions(paths)


@pytest.mark.parametrize("path", ["a/" * 59_999 + "a", "a/" * 64 + "a", "é" * 513, "a" * 2000 + "/b"])
def test_a_path_has_bounds(path: str) -> None:
    with pytest.raises(InvalidInputError, match="more than") as raised:
        check_path(path)
    assert len(str(raised.value)) < 1000
    assert raised.value.next_step == "shorten it"


def test_the_longest_path() -> None:
    assert check_path("a/" * 63 + "a")
    assert check_path("/".join(["a" * 255, "b" * 255, "c" * 255, "d" * 255]))


def test_a_small_listing_costs_little_memory() -> None:
    deep = "/".join("a" * 60)
    rows = sorted([f"{deep}/{number:04}", EMPTY, 0] for number in range(210))
    content = json.dumps(rows, separators=(",", ":")).encode()
    assert len(content) < 50_000
    tracemalloc.start()
    try:
        assert len(parse_listing(content, "tree/")) == 210
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()
    long = json.dumps([["a/" * 24_000 + "a", EMPTY, 0]]).encode()
    with pytest.raises(InvalidInputError, match="more than"):
        parse_listing(long, "tree/")


def test_a_listing_of_any_size_is_not_read(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    blob = store.put(io.BytesIO(b"[" + b" " * 200 + b"]"))
    monkeypatch.setattr("benchlock.artifacts.file_trees.LARGEST_LISTING", 100)
    monkeypatch.setattr("benchlock.artifacts.file_trees.read", None)
    with pytest.raises(InvalidInputError, match="it has 202 bytes, more than 100"):
        read_tree(store, Descriptor(blob.digest, 0), name="tree/")


def iterated(store: LocalStore, content: bytes, size: int) -> list[TreeEntry]:
    tree = Descriptor(store.put(io.BytesIO(content)).digest, size)
    return list(iterate_tree(store, tree, name="images/"))


def test_iteration_gives_what_reading_gives(store: LocalStore) -> None:
    """Rows across the pieces that are read, and paths of every kind that canonical JSON escapes or does not."""
    names = ['a"b', "ä/ö", "x],[y", ",", "日本", "d" * 250, *(f"{number}/{number * 7919}" for number in range(3000))]
    entries = [TreeEntry(name, to_hex(digest_bytes(name.encode())), len(name)) for name in names]
    content, size = encode_listing(entries), sum(map(len, names))
    tree = Descriptor(store.put(io.BytesIO(content)).digest, size)
    assert tuple(iterated(store, content, size)) == read_tree(store, tree, name="images/")
    assert iterated(store, b"[]", 0) == []
    with pytest.raises(IntegrityError, match=f"have {size} bytes, but 7 are stated"):
        iterated(store, content, 7)


ROW = b'["a","' + b"0" * 64 + b'",1]'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[",
        b"[" + ROW,
        b"[" + ROW + b",",
        b"[" + ROW + b"]]",
        b"[" + ROW + b",]",
        b"[ " + ROW + b"]",
        b"[" + ROW.replace(b"1", b"-1") + b"]",
        b"[" + ROW.replace(b"a", b"../a") + b"]",
        b"[" + ROW.replace(b"a", b"\xff") + b"]",
        b"[" + ROW.replace(b"a", b"a" * 100_000) + b"]",
        b"[" + ROW.replace(b"0", b"x") + b"]",
    ],
)
def test_iteration_refuses_what_is_no_listing(store: LocalStore, content: bytes) -> None:
    with pytest.raises(InvalidInputError, match="the listing of the tree images/ is malformed"):
        iterated(store, content, 1)


def test_iteration_costs_little_memory(store: LocalStore) -> None:
    content = b"[" + b",".join(b'["%07d","%s",1]' % (number, b"0" * 64) for number in range(100_000)) + b"]"
    tree = store.put(io.BytesIO(content))
    tracemalloc.start()
    try:
        assert sum(1 for _ in iterate_tree(store, Descriptor(tree.digest, 100_000), name="images/")) == 100_000
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_blob_that_is_no_document_is_not_read(store: LocalStore) -> None:
    found = store.put(io.BytesIO(b"x" * 1000))
    assert len(read(store, found.digest, name="it", most=1000)) == 1000
    with pytest.raises(InvalidInputError, match="it has more than 999 bytes"):
        read(store, found.digest, name="it", most=999)
