"""What lies in a zip file by names that nobody should unpack: frameworks do, and not all of them look."""

import stat
import zipfile
from collections.abc import Iterator
from typing import BinaryIO

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.trees import check_collisions, check_path
from benchlock.registry.inspection.budgets import BUDGET, check_count, meter_stream

_UNIX = 3


def faults(stream: BinaryIO) -> Iterator[str]:
    """Why the file should not be unpacked, as sentences without a subject; none where it is no zip file."""
    stream = meter_stream(stream)
    stream.seek(0)
    if not zipfile.is_zipfile(stream):
        return
    try:
        archive = zipfile.ZipFile(stream)
    except (zipfile.BadZipFile, ValueError, OSError):
        return
    with archive:
        members = archive.infolist()
        check_count(len(members), BUDGET.members, "members")
    names = [member.filename for member in members]
    for member in members:
        try:
            check_path(member.filename.removesuffix("/"))
        except InvalidInputError as error:
            yield f"holds a file that would leave its folder: {error.what}"
        if member.create_system == _UNIX and stat.S_ISLNK(member.external_attr >> 16):
            yield f"holds a symbolic link, {member.filename!a}"
    seen: set[str] = set()
    twice = next((name for name in names if name in seen or seen.add(name)), None)  # type: ignore[func-returns-value]
    if twice is not None:
        yield f"holds {twice!a} twice"
    try:
        check_collisions(name for name in names if not name.endswith("/"))
    except InvalidInputError as error:
        yield f"holds names that are one: {error.what}"
