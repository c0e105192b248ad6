"""Splits whose samples are files of their own, named by an index: a CSV."""

import csv
import io
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.inspection.budgets import BUDGET, read_text_lines
from benchlock.registry.inspection.classes import Classes, label_fault
from benchlock.registry.inspection.content import Content
from benchlock.registry.manifests import Split
from benchlock.registry.problems import Problems

SHOWN = 20
"""Lines of one index that are told one by one."""

_COLUMNS = ("path", "label", "mask")
_NEAR = 0.8  # of difflib: ``lable`` is a misspelt label, and ``part`` and ``task`` are columns of their own
_WAV = 12  # bytes of a wav file's beginning


@dataclass(frozen=True, slots=True)
class _Index:
    """An index of ``form``, and what its rows are held against."""

    path: str
    form: str
    classes: Classes | None
    content: Content
    sounds: set[Digest] = field(default_factory=set)

    def faults(self, row: dict[str, str], line: str) -> Iterator[InvalidInputError]:
        # A path is taken as it stands, a mask without the spaces around it: so does the harness.
        yield from self._file_faults(row["path"], line)
        if self.form == "image-index" and (mask := (row.get("mask") or "").strip()):
            yield from self._file_faults(mask, line)
        label = (row.get("label") or "").strip()
        if label and (fault := label_fault(label, self.classes)):
            yield self.content.error(fault, line, "correct the label")

    def _file_faults(self, named: str, line: str) -> Iterator[InvalidInputError]:
        sample = posixpath.normpath(posixpath.join(posixpath.dirname(self.path), named))
        if sample not in self.content.files:
            if not self.content.is_untaken(sample):
                yield self.content.error(f"{sample} is none of the files", line, "correct the path, or add the file")
        elif self.form == "wav-index":
            digest = self.content.files[sample].digest
            if digest in self.sounds:  # of many samples that are one file, it is read once
                return
            with self.content.open(sample, line) as stream:
                start = stream.read(_WAV)
            if start[:4] == b"RIFF" and start[8:] == b"WAVE":
                self.sounds.add(digest)
            else:
                yield self.content.error(f"{sample} is no WAV file", line, "convert it to WAV")


def check_index(
    form: str, split: Split, content: Content, classes: Classes | None, found_at: tuple[str, Problems]
) -> int:
    """The number of rows, each of which names files and a label that exist."""
    where, problems = found_at
    index = _Index(str(split.index), form, classes, content)
    count, wrong, before = 0, 0, dict[str, bool]()
    for count, row in enumerate(_rows(index.path, content, f"{where}.index"), start=1):
        line = f"{index.path}, line {count + 1}"
        found = list(index.faults(row, line))
        for column in ("label", "mask"):
            there = bool((row.get(column) or "").strip())
            if before.setdefault(column, there) != there:
                what = f"some samples have a {column}, and some have none"
                found.append(content.error(what, line, "label all of them, or none"))
        for error in found[: max(SHOWN - wrong, 0)]:
            problems.add(error)
        wrong += len(found)
    if wrong > SHOWN:
        problems.add(content.error(f"{wrong - SHOWN} more lines of {index.path} are wrong", f"{where}.index"))
    return count


def _meant_column(name: str, names: tuple[str, ...]) -> str | None:
    """Return the column that an unknown one is written almost like; None if it is known, or like none."""
    if name in _COLUMNS:
        return None
    plain = name.strip().lower()
    near = get_close_matches(plain, set(_COLUMNS).difference(names), n=1, cutoff=_NEAR)
    return plain if plain in _COLUMNS else next(iter(near), None)


def _rows(path: str, content: Content, where: str) -> Iterator[dict[str, str]]:
    with content.open(path, where) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        try:
            reader = csv.DictReader(read_text_lines(text, BUDGET.line))
            names = tuple(reader.fieldnames or ())
            if "path" not in names:
                raise content.error(f"{path} has no column 'path'", where, "write the columns path,label")
            for name in names:
                if meant := _meant_column(name, names):
                    what = f"{path} has a column {name!r}, which nothing reads"
                    raise content.error(what, where, f"did you mean {meant!r}?")
            for row in reader:
                if not row["path"]:
                    raise content.error(f"line {reader.line_num} has no path", path, "write one sample a line")
                yield row
        except (csv.Error, UnicodeDecodeError) as error:
            raise content.error(f"{path} is no CSV in UTF-8: {error}", where) from error
