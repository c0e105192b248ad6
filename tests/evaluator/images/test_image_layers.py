import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchlock.artifacts.digest import digest_bytes
from benchlock.evaluator.images.image_layers import write_layer


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def plant(folder: Path, order: int, mask: int, time: int) -> Path:
    """The same tree, made in another order, under another umask, at another time."""
    files = {"opt/b/x.py": "x", "opt/b.py": "y", "opt/é" + "n" * 120: "z", "opt/b/run": "#!", "opt/a/b/c": ""}
    with umask(mask):
        for path, text in sorted(files.items())[::order]:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
            os.utime(folder / path, (time, time))
        (folder / "opt/b/run").chmod(0o777 & ~mask)
    return folder


def test_a_layer_follows_from_the_files_alone(tmp_path: Path) -> None:
    one = write_layer(plant(tmp_path / "1", 1, 0o022, 1), tmp_path / "1.tar")
    two = write_layer(plant(tmp_path / "two", -1, 0o077, 1_700_000_000), tmp_path / "2.tar")
    assert one == two
    assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()
    assert one.digest == digest_bytes((tmp_path / "1.tar").read_bytes())


def test_another_byte_or_an_executable_more_is_another_layer(tmp_path: Path) -> None:
    tree = plant(tmp_path / "1", 1, 0o022, 1)
    before = write_layer(tree, tmp_path / "1.tar").digest
    (tree / "opt/a/b/c").chmod(0o755)
    executable = write_layer(tree, tmp_path / "2.tar").digest
    (tree / "opt/a/b/c").write_text("!")
    assert len({before, executable, write_layer(tree, tmp_path / "3.tar").digest}) == 3


def test_entries_are_sorted_and_say_nothing_of_this_host(tmp_path: Path) -> None:
    write_layer(plant(tmp_path / "1", 1, 0o077, 5), tmp_path / "1.tar")
    with tarfile.open(tmp_path / "1.tar", "r:") as archive:
        entries = archive.getmembers()
    names = [entry.name for entry in entries]
    assert names == sorted(names, key=str.encode)
    assert {"opt", "opt/a", "opt/a/b", "opt/b"} == {entry.name for entry in entries if entry.isdir()}
    assert {(entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) for entry in entries} == {
        (0, 0, "", "", 315_532_800)
    }
    modes = {entry.name: entry.mode for entry in entries}
    assert (modes["opt/b"], modes["opt/b/run"], modes["opt/b/x.py"]) == (0o755, 0o755, 0o644)
