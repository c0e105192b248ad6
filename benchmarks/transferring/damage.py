"""What a reader gets of a store whose bytes have changed: a bit flipped, or the second half of a file gone."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.transferring.contestants import Contestant
from benchmarks.transferring.measuring import Taken, files_below


def flip(file: Path) -> None:
    """Change one bit in the middle."""
    with file.open("r+b") as stream:
        stream.seek(file.stat().st_size // 2)
        (byte,) = stream.read(1)
        stream.seek(-1, os.SEEK_CUR)
        stream.write(bytes([byte ^ 1]))


def truncate(file: Path) -> None:
    """Leave the first half."""
    os.truncate(file, file.stat().st_size // 2)


KINDS: Mapping[str, Callable[[Path], None]] = {"a flipped bit": flip, "a truncated blob": truncate}


def outcome(contestant: Contestant, source: Path, damage: Callable[[Path], None], target: Path) -> str:
    """What `fetch` leaves after the stored bytes of ``source`` were damaged, in words."""
    brought = contestant.bring(source)
    contestant.publish(brought)
    size = source.stat().st_size
    kept = [file for path in contestant.stored() for file in files_below(path) if file.stat().st_size == size]
    assert kept, f"{contestant.title} keeps no file of {size} bytes"
    for file in kept:
        mode = file.stat().st_mode
        file.chmod(0o600)
        damage(file)
        file.chmod(mode)  # which nothing but the bytes may tell
    return _told(contestant.fetch(target), source, target)


def _told(taken: Taken, source: Path, target: Path) -> str:
    found = [path for path in files_below(target) if path.name == source.name] if target.exists() else []
    if not found:
        left = "nothing delivered"
    elif found[0].read_bytes() == source.read_bytes():
        left = "the right bytes"
    else:
        left = f"wrong bytes delivered ({found[0].stat().st_size:,} of {source.stat().st_size:,})"
    named = "" if taken.code == 0 else f"; the file is {'' if source.name in taken.output else 'not '}named"
    trace = ", with a traceback" if "Traceback (most recent call last)" in taken.output else ""
    return f"exit {taken.code}{trace}, {left}{named}"
