"""Layers laid over one another, as an engine shows them; and layers that mean harm."""

import io
import tarfile
from pathlib import Path

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.images.base_image import apply_layer

Entry = tuple[str, str]
"""A path, and its text; or ``dir``, ``-> target``, ``= source``, ``fifo`` after a colon."""


def layer(folder: Path, *entries: Entry) -> Path:
    path = folder / f"layer-{len(list(folder.glob('layer-*')))}.tar"
    with tarfile.open(path, "w") as archive:
        for name, content in entries:
            entry = tarfile.TarInfo(name)
            entry.mode = 0o4755 if "bin/" in name else 0o640
            kinds = {
                ":dir": tarfile.DIRTYPE,
                ":-> ": tarfile.SYMTYPE,
                ":= ": tarfile.LNKTYPE,
                ":fifo": tarfile.FIFOTYPE,
            }
            start = next((start for start in kinds if content.startswith(start)), None)
            if start is not None:
                entry.type, entry.linkname = kinds[start], content.removeprefix(start)
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content.encode()))
    return path


def applied(folder: Path, *layers: tuple[Entry, ...]) -> dict[str, str]:
    """Every file and link below the root that the layers make."""
    root = folder / "root"
    root.mkdir()
    for entries in layers:
        apply_layer(layer(folder, *entries), root)
    return {
        str(path.relative_to(root)): f"-> {path.readlink()}" if path.is_symlink() else path.read_text()
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_a_later_layer_replaces_adds_and_hides(tmp_path: Path) -> None:
    found = applied(
        tmp_path,
        (("./a/one", "1"), ("a/two", "2"), ("b/three", "3"), ("gone/deep/file", "4"), ("kind", "file")),
        (
            ("a/.wh.one", ""),
            ("a/two", "two"),
            ("b/new", "n"),
            ("b/.wh..wh..opq", ""),
            (".wh.gone", ""),
            ("kind/x", "x"),
        ),
    )
    assert found == {"a/two": "two", "b/new": "n", "kind/x": "x"}


def test_a_layer_may_hide_what_was_and_bring_its_own(tmp_path: Path) -> None:
    found = applied(tmp_path, (("a/old", "1"), ("f", "1")), (("a/new", "2"), (".wh.a", ""), ("f", "2"), (".wh.f", "")))
    assert found == {"a/new": "2", "f": "2"}


def test_links_stay_links_and_modes_are_two(tmp_path: Path) -> None:
    entries = (("usr/bin/tool", "#!"), ("bin", ":-> usr/bin"), ("usr/bin/alias", ":= usr/bin/tool"), ("etc/f", "x"))
    found = applied(tmp_path, entries)
    assert found == {"usr/bin/tool": "#!", "bin": "-> usr/bin", "usr/bin/alias": "#!", "etc/f": "x"}
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (tmp_path / "root").rglob("*") if path.is_file()}
    assert modes == {"tool": 0o755, "alias": 0o755, "f": 0o644}


def test_what_no_interpreter_needs_is_left_out(tmp_path: Path) -> None:
    entries = (("dev/null", ":fifo"), ("usr/share/doc/x", "x"), ("var/log/y", "y"), ("variant", "v"), ("pipe", ":fifo"))
    assert applied(tmp_path, entries) == {"variant": "v"}


@pytest.mark.parametrize("target", ["outside", "../outside", "/outside"])
def test_nothing_is_written_through_a_link(tmp_path: Path, target: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    pointing = str(outside) if target.startswith("/") else target
    through = (("evil", f":-> {pointing}"), ("evil/file", "harm"), ("out", f":-> {pointing}/file"), ("out", "harm"))
    assert applied(tmp_path, through, (("evil/.wh.keep", ""), ("evil/more", "m")))["evil/more"] == "m"
    assert list(outside.iterdir()) == []


def test_a_hard_link_leads_to_no_file_outside(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    entries = (("up", f":-> {tmp_path}"), ("stolen", ":= up/secret"), ("self", ":= self"))
    assert applied(tmp_path, entries) == {"up": f"-> {tmp_path}"}


@pytest.mark.parametrize("name", ["../file", "a/../../file", "a/.wh..."])
def test_an_entry_that_leaves_the_root_is_refused_with_its_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInputError, match="is outside the root file system") as caught:
        applied(tmp_path, ((name, "x"),))
    assert caught.value.where == name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["layer-0.tar", "root"]


def test_an_absolute_path_is_below_the_root(tmp_path: Path) -> None:
    assert applied(tmp_path, (("/etc/x", "x"),)) == {"etc/x": "x"}


def test_what_is_no_tar_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"no tar" * 1000)
    with pytest.raises(InvalidInputError, match=r"x\.tar is not a tar"):
        apply_layer(tmp_path / "x.tar", tmp_path)
