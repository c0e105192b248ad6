"""A bundle's file: the same bytes for the same content, and nothing but plain files that its index lists."""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from benchlock.artifacts.blob_store import read
from benchlock.artifacts.bundles.bundle_format import (
    TAR_END,
    BundleError,
    BundlePart,
    BundleRoot,
    make_tar_header,
    make_tar_padding,
    write_bundle,
)
from benchlock.artifacts.bundles.bundle_reader import open_bundle
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.user_output import SILENT
from tests.support.artifacts.bundled import Document, Files, changed, name_of, packed, unpacked
from tests.support.artifacts.memory_store import MemoryStore

BLOBS = (b"", b"one", b"another", bytes(3000))
DOCUMENT = b"a document"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def root(store: MemoryStore, blobs: Iterable[bytes] = BLOBS, document: bytes = DOCUMENT) -> BundleRoot:
    found = [store.put(io.BytesIO(blob)) for blob in blobs]
    return BundleRoot(
        "application/x-test", document, tuple(BundlePart(one, f"blob {i}") for i, one in enumerate(found))
    )


@pytest.fixture
def bundle(store: MemoryStore, tmp_path: Path) -> Path:
    path = tmp_path / "bundle.tar"
    write_bundle(path, [root(store)], store, SILENT)
    return path


@pytest.fixture
def files(bundle: Path) -> Files:
    return unpacked(bundle)


def refusal(path: Path) -> BenchlockError:
    """The error of opening the bundle, or of taking its blobs in."""
    with pytest.raises(BenchlockError) as caught, open_bundle(path) as opened:
        opened.store_into(MemoryStore(), SILENT)
    assert str(path) in (caught.value.where or "")
    return caught.value


def test_what_was_written_is_read(bundle: Path) -> None:
    taken = MemoryStore()
    with open_bundle(bundle) as opened:
        (arrived,) = opened.roots
        assert (arrived.media_type, arrived.content) == ("application/x-test", DOCUMENT)
        assert opened.store_into(taken, SILENT) == len(BLOBS)
    assert {read(taken, digest, name="blob") for digest in arrived.blobs} == set(BLOBS)


def test_the_same_content_gives_the_same_bytes(store: MemoryStore, tmp_path: Path) -> None:
    one, other = tmp_path / "one.tar", tmp_path / "other"
    written = write_bundle(one, [root(store)], store, SILENT)
    write_bundle(other, [root(store)], store, SILENT)
    assert one.read_bytes() == other.read_bytes()
    assert written == Descriptor(digest_bytes(one.read_bytes()), one.stat().st_size)


def test_nothing_of_the_host_is_in_it_and_entries_are_sorted(bundle: Path) -> None:
    with tarfile.open(bundle) as tar:
        entries = list(tar)
    assert {(e.uid, e.gid, e.uname, e.gname, e.mtime, e.mode, e.type) for e in entries} == {
        (0, 0, "", "", 0, 0o644, tarfile.REGTYPE)
    }
    names = [entry.name for entry in entries]
    assert names[:2] == ["oci-layout", "index.json"]
    assert names[4:] == sorted(name_of(digest_bytes(blob)) for blob in BLOBS)


def test_a_file_that_cannot_be_whole_is_not_there(store: MemoryStore, tmp_path: Path) -> None:
    written = root(store)
    store.delete(written.parts[1].blob.digest)
    with pytest.raises(IntegrityError, match="blob 1 is missing"):
        write_bundle(tmp_path / "bundle.tar", [written], store, SILENT)
    store._blobs[written.parts[1].blob.digest] = b"two"
    with pytest.raises(IntegrityError, match="blob 1 does not match its digest"):
        write_bundle(tmp_path / "bundle.tar", [written], store, SILENT)
    with pytest.raises(UnavailableError, match="cannot be written"):
        write_bundle(tmp_path / "nowhere" / "bundle.tar", [root(store)], store, SILENT)
    assert list(tmp_path.iterdir()) == []


def test_more_blobs_than_a_manifest_holds(store: MemoryStore, tmp_path: Path) -> None:
    """Few of them, but with names so long that a manifest of all would be larger than any that is read."""
    long = root(store, [b"%d" % number for number in range(30)])
    long = replace(long, parts=tuple(replace(part, name=f"{part.name} {'a' * 200_000}") for part in long.parts))
    write_bundle(tmp_path / "bundle.tar", [long, root(store, [], b"alone")], store, SILENT)
    with open_bundle(tmp_path / "bundle.tar") as opened:
        assert [len(arrived.blobs) for arrived in opened.roots] == [30, 0]
    assert len(unpacked(tmp_path / "bundle.tar")) == 2 + 2 + 1 + 2 + 30


def test_a_blob_that_is_a_document_too_is_stored(store: MemoryStore, tmp_path: Path) -> None:
    write_bundle(tmp_path / "bundle.tar", [root(store, [DOCUMENT, b"other"])], store, SILENT)
    taken = MemoryStore()
    with open_bundle(tmp_path / "bundle.tar") as opened:
        assert opened.store_into(taken, SILENT) == 2
    assert taken.exists(digest_bytes(DOCUMENT))


def test_sizes_beyond_octal_digits_are_written_and_read() -> None:
    block = make_tar_header("index.json", 3 << 40)
    assert tarfile.TarInfo.frombuf(block, "utf-8", "strict").size == 3 << 40


def test_the_order_of_the_files_is_free(files: Files, tmp_path: Path) -> None:
    taken = MemoryStore()
    with open_bundle(packed(tmp_path / "sorted.tar", dict(sorted(files.items())))) as opened:
        assert opened.store_into(taken, SILENT) == len(BLOBS)


# What no bundle holds


def tar_of(path: Path, files: Files, *extra: tarfile.TarInfo, form: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.open(path, "w", format=form) as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
        for entry in extra:
            tar.addfile(entry, io.BytesIO(bytes(entry.size)))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, size
    return made


SPARE = name_of("sha256:" + "0" * 64)
TRICKS = {
    "an absolute path": (entry("/etc/passwd"), "does not belong to an image layout"),
    "a path that leads out": (entry("blobs/../../evil"), "does not belong to an image layout"),
    "a path that leads out and in again": (
        entry("blobs/sha256/../../index.json"),
        "does not belong to an image layout",
    ),
    "another name": (entry("README"), "does not belong to an image layout"),
    "a blob in capitals": (entry(SPARE.replace("0", "A")), "does not belong to an image layout"),
    "a blob of another digest": (entry(SPARE.replace("sha256", "sha512")), "does not belong to an image layout"),
    "a name with a line break": (entry(SPARE + "\n"), "does not belong to an image layout"),
    "a symbolic link": (entry(SPARE, tarfile.SYMTYPE, "/etc/passwd"), "a symbolic link"),
    "a hard link": (entry(SPARE, tarfile.LNKTYPE, "index.json"), "a hard link"),
    "a device": (entry(SPARE, tarfile.CHRTYPE), "a device"),
    "a pipe": (entry(SPARE, tarfile.FIFOTYPE), "a pipe"),
    "a folder": (entry("blobs/sha256", tarfile.DIRTYPE), "a folder"),
    "a sparse file": (entry(SPARE, tarfile.GNUTYPE_SPARSE), "a sparse file"),
    "a long name": (entry(SPARE, tarfile.GNUTYPE_LONGNAME), "an unknown entry"),
    "a file that the index does not list": (entry(SPARE, size=5), "which its index does not list"),
    "a duplicate": (entry("index.json"), "index.json twice"),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_tricks_of_tars_are_refused_by_name(trick: str, files: Files, tmp_path: Path) -> None:
    extra, reason = TRICKS[trick]
    error = refusal(tar_of(tmp_path / "bad.tar", files, extra))
    assert isinstance(error, BundleError)
    assert reason in error.what
    assert "\n" not in error.what


def test_pax_headers_are_refused(files: Files, tmp_path: Path) -> None:
    """They could give the next file another name or size than its own header."""
    extra = entry(SPARE)
    extra.pax_headers = {"path": "/etc/passwd", "size": "99999"}
    error = refusal(tar_of(tmp_path / "bad.tar", files, extra, form=tarfile.PAX_FORMAT))
    assert "an unknown entry" in error.what


def test_a_duplicate_of_a_blob_is_refused(files: Files, tmp_path: Path) -> None:
    name = name_of(digest_bytes(b"one"))
    assert f"{name} twice" in refusal(packed(tmp_path / "bad.tar", [*files.items(), (name, b"two")])).what


@pytest.mark.parametrize("content", [b"", b"hello\n", b"PK\3\4", bytes(511)])
def test_a_file_that_is_too_short_to_be_a_bundle_is_no_damaged_bundle(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "short"
    path.write_bytes(content)
    assert isinstance(refusal(path), BundleError)


@pytest.mark.parametrize("size", [10, 100, 511])
def test_a_bundle_of_which_little_is_left_is_cut_short(size: int, bundle: Path) -> None:
    bundle.write_bytes(bundle.read_bytes()[:size])
    error = refusal(bundle)
    assert isinstance(error, IntegrityError)
    assert "truncated" in error.what


def test_zeros_that_fill_up_a_record_may_follow(bundle: Path) -> None:
    whole = bundle.read_bytes()
    bundle.write_bytes(whole + bytes(-len(whole) % 10240))
    with open_bundle(bundle) as opened:
        assert opened.store_into(MemoryStore(), SILENT) == len(BLOBS)
    bundle.write_bytes(whole + bytes(-len(whole) % 10240 - 1))
    assert "truncated" in refusal(bundle).what


@pytest.mark.parametrize("end", [b"more", bytes(1 << 17), make_tar_header("index.json", 0)])
def test_nothing_follows_after_the_end(end: bytes, bundle: Path) -> None:
    bundle.write_bytes(bundle.read_bytes() + end)
    assert "follow" in refusal(bundle).what


def test_nothing_hides_between_files(bundle: Path) -> None:
    content = bytearray(bundle.read_bytes())
    assert content[1023] == 0
    content[1023] = 1
    bundle.write_bytes(content)
    assert "bytes between the end of oci-layout and the next header" in refusal(bundle).what


def test_a_damaged_header_after_the_first_file_is_no_other_file(bundle: Path) -> None:
    whole = bundle.read_bytes()
    for place in (0, 1024):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        bundle.write_bytes(damaged)
        error = refusal(bundle)
        assert isinstance(error, IntegrityError if place else BundleError)
        assert ("compare its SHA-256" in str(error)) == bool(place)


@pytest.mark.parametrize("text", [b"", b"PK\3\4" * 200, bytes(512), b"\x1f\x8b" + bytes(600)])
def test_what_is_no_bundle_is_refused(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "no.tar"
    path.write_bytes(text)
    assert isinstance(refusal(path), InvalidInputError | IntegrityError)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    assert isinstance(refusal(tmp_path), InvalidInputError)
    assert isinstance(refusal(tmp_path / "nothing"), InvalidInputError)


def test_a_size_that_leads_behind_the_end_is_refused(files: Files, tmp_path: Path) -> None:
    """As of a bomb, or of a file that was cut: nothing of that size is ever made."""
    path = tmp_path / "bad.tar"
    whole = b"".join(
        make_tar_header(name, len(text)) + text + make_tar_padding(len(text)) for name, text in files.items()
    )
    for size in (1 << 20, 1 << 50):
        path.write_bytes(whole + make_tar_header(SPARE, size) + TAR_END)
        assert isinstance(refusal(path), IntegrityError)


def test_a_bundle_cut_anywhere_is_refused(bundle: Path, tmp_path: Path) -> None:
    whole, path = bundle.read_bytes(), tmp_path / "cut.tar"
    for length in (*range(0, len(whole), 97), len(whole) - 1024, len(whole) - 512, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert isinstance(refusal(path), IntegrityError | BundleError)


# An index that lies


def lie(change: Callable[[Document, list[Document]], None]) -> Callable[[Files], Files]:
    return lambda files: changed(files, change)


def other_bytes(files: Files) -> Files:
    return {**files, name_of(digest_bytes(b"one")): b"two"}


def other_document(files: Files) -> Files:
    return {**files, name_of(digest_bytes(DOCUMENT)): b"A document"}


def without_blob(files: Files) -> Files:
    return {name: text for name, text in files.items() if text != b"one"}


def longer_blob(files: Files) -> Files:
    return {**files, name_of(digest_bytes(b"one")): b"one and more"}


LIES: dict[str, tuple[Callable[[Files], Files], str]] = {
    "a blob that is not there": (without_blob, "does not contain"),
    "a blob of other bytes": (other_bytes, "does not match its digest"),
    "a longer blob": (longer_blob, "index is wrong: it lists 3 bytes"),
    "a document of other bytes": (other_document, "does not match its digest"),
    "another size": (lie(lambda _, manifests: manifests[0]["layers"][1].update(size=2)), "index is wrong: it lists 2"),
    "two sizes of one blob": (
        lie(lambda _, manifests: manifests[0]["layers"].append(manifests[0]["layers"][1] | {"size": 4})),
        "index is wrong: it lists 4",
    ),
    "another size of a manifest": (
        lambda files: {**files, "index.json": files["index.json"].replace(b'"size":', b'"size":1')},
        "index is wrong",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_an_index_that_lies_is_an_integrity_violation(name: str, files: Files, tmp_path: Path) -> None:
    change, reason = LIES[name]
    error = refusal(packed(tmp_path / "bad.tar", change(files)))
    assert isinstance(error, IntegrityError), error
    assert reason in error.what
    assert "copy or download the bundle again" in str(error)


def repeated(files: Files) -> Files:
    """It would have to be read again and again."""
    index = json.loads(files["index.json"])
    return {**files, "index.json": encode_canonical(index | {"manifests": index["manifests"] * 2})}


def huge(files: Files) -> Files:
    return {**files, "index.json": files["index.json"] + b" " * (4 << 20)}


NO_INDEX: dict[str, tuple[Callable[[Files], Files], str]] = {
    "no layout": (lambda files: {**files, "oci-layout": encode_canonical({"imageLayoutVersion": "2.0.0"})}, "2.0.0"),
    "no JSON": (lambda files: {**files, "index.json": b"index"}, "malformed"),
    "no index": (lambda files: {name: text for name, text in files.items() if name != "index.json"}, "missing file"),
    "nested without end": (lambda files: {**files, "index.json": b'{"more":' + b"[" * 100_000}, "nested"),
    "an index of indexes": (
        lie(lambda index, _: index["manifests"][0].update(mediaType=index["mediaType"])),
        "entries that are not manifests",
    ),
    "a manifest twice": (repeated, "lists a manifest twice"),
    "a digest of another kind": (
        lie(lambda _, manifests: manifests[0]["layers"][1].update(digest="sha512:00")),
        "invalid digest",
    ),
    "a negative size": (lie(lambda _, manifests: manifests[0]["layers"][1].update(size=-1)), "negative"),
    "no schema": (lie(lambda index, _: index.pop("annotations")), "vnd.benchlock.bundle.schema"),
    "a newer major schema": (
        lie(lambda index, _: index["annotations"].update({"vnd.benchlock.bundle.schema": "2.0"})),
        "only 1.x is supported",
    ),
    "an index that is too large": (huge, "; the limit is"),
}


@pytest.mark.parametrize("name", NO_INDEX)
def test_what_is_no_index_is_refused(name: str, files: Files, tmp_path: Path) -> None:
    change, reason = NO_INDEX[name]
    with pytest.raises(InvalidInputError, match=reason), open_bundle(packed(tmp_path / "bad.tar", change(files))):
        pass


def test_a_newer_minor_schema_is_warned_about(files: Files, tmp_path: Path) -> None:
    def newer(index: Document, _: list[Document]) -> None:
        index["annotations"]["vnd.benchlock.bundle.schema"] = "1.7"
        index["a-key-of-a-later-version"] = True

    with open_bundle(packed(tmp_path / "newer.tar", changed(files, newer))) as opened:
        assert "1.7" in opened.warnings[0]


def test_a_bundle_that_shrinks_while_it_is_read(bundle: Path) -> None:
    taken = MemoryStore()
    with open_bundle(bundle) as opened:
        bundle.write_bytes(bundle.read_bytes()[:3000])
        with pytest.raises(IntegrityError, match="truncated"):
            opened.store_into(taken, SILENT)
    assert all(hashlib.sha256(read(taken, one, name="blob")).hexdigest() == one[7:] for one in taken.list())
