"""Dataset manifests of splits that are one file each: arrays, JSON lines and Parquet."""

import gzip
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from benchlock.artifacts.atomic_files import open_regular
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.inspection.formats.parquet import read_footer
from benchlock.registry.inspection.formats.tensor_files import read_arrays
from benchlock.registry.inspection.formats.untrusted_files import BUDGET, Meter, OverBudgetError, read_lines
from benchlock.registry.scaffold.source_files import ScaffoldSource, require_samples
from benchlock.registry.text.collected_problems import ImportNotes, format_original, printable
from benchlock.registry.text.yaml import Lines, block_lines, entry_lines, format_flow

SPLITS = ("train", "test", "val", "validation", "dev")


def split_name(path: Path, notes: ImportNotes) -> str:
    """Return the name of a split: a usual name that is part of the file's, else ``all``."""
    words = path.name.lower().replace("-", ".").replace("_", ".").split(".")
    name = next((split for split in SPLITS if split in words), "all")
    notes.tell("splits", "splits", f"one split, of {path.name}", f"called {name}")
    return name


@contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO]:
    """Open a file, decompressed if it is gzip."""
    with open_regular(path) as stream:
        packed = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        try:
            unpacked = cast("BinaryIO", gzip.GzipFile(fileobj=stream)) if packed else stream
            yield cast("BinaryIO", Meter(unpacked, most=BUDGET.unpacked)) if packed else stream
        except (OSError, EOFError) as error:
            raise InvalidInputError(f"{path.name} cannot be unpacked: {error}", where=str(path)) from error


@dataclass(frozen=True, slots=True)
class SampleFile:
    """A file of samples: its format, the number of samples if it is known, and what is known about its keys."""

    form: str
    samples: int | None
    keys: str


def file_form(name: str) -> str | None:
    """Return the format of a file of samples by its name."""
    return _FORMS.get(name.lower().removesuffix(".gz").rpartition(".")[2])


def describe_file(source: ScaffoldSource, path: Path, form: str) -> SampleFile:
    """Read the number of samples and the keys of a file.

    Raises:
        InvalidInputError: The file is not of that format, or has no samples.
    """
    described = _READERS[form](source, path)
    require_samples(path, described.samples)
    return described


def file_lines(source: ScaffoldSource, form: str) -> Lines:
    """Return the manifest of a split in one file, whose fields only its author knows."""
    described = describe_file(source, source.path, form)
    split = split_lines(source.path.name, described, None, source.notes)
    splits = block_lines("splits", block_lines(split_name(source.path, source.notes), split))
    return [*entry_lines("format", form), *splits, *block_lines("files", source.file(source.path))]


def split_lines(path: str, described: SampleFile, fields: Mapping[str, str] | None, notes: ImportNotes) -> Lines:
    """Return the keys of a split in one file.

    Args:
        path: The path of the file in the dataset.
        described: What is known about the file.
        fields: The key of each field; None if they are unknown.
        notes: Receives the findings.
    """
    lines = [f"file: {format_flow(path)}"]
    if fields is None:
        ask = "write fields: {FIELD: KEY, label: KEY}, such as {image: x_test, label: y_test}; "
        ask += "omit label if there is none"
        lines.append(notes.todo("splits.fields", "fields", "fields", described.keys, ask))
    else:
        lines.append(f"fields: {format_flow(fields)}")
    if described.samples is None:
        lines.append(notes.todo("splits.samples", "samples", "samples", "cannot be determined", "count them"))
    else:
        lines.append(f"samples: {described.samples}")
    return lines


def _arrays(source: ScaffoldSource, path: Path) -> SampleFile:
    """Describe an npz file."""
    arrays = source.read(path, lambda stream, _: read_arrays(stream), "npz file")
    counts = {array.shape[0] if array.shape else 0 for array in arrays}
    listed = ", ".join(f"{printable(array.name)} {array.descr} {list(array.shape)}" for array in arrays)
    samples = next(iter(counts)) if len(counts) == 1 else None
    return SampleFile("npz", samples, f"{path.name} contains {listed or 'no array'}")


def _records(_: ScaffoldSource, path: Path) -> SampleFile:
    """Describe a file with one JSON object per line."""
    count, keys = 0, list[str]()
    with open_unpacked(path) as stream:
        try:
            for line in read_lines(stream, BUDGET.line):
                if line.strip():
                    count += 1
                    keys = keys or _keys(line, path)
        except OverBudgetError as error:
            raise InvalidInputError(f"{path.name} {error}", where=str(path), next_step="choose another file") from error
    listed = ", ".join(map(format_original, keys)) or "none"
    return SampleFile("jsonl", count, f"the first line has the keys {listed}")


def _keys(line: bytes, path: Path) -> list[str]:
    """Return the keys of a line."""
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInputError(f"{path.name} is not JSON Lines: {error}", where=str(path)) from error
    return list(record) if isinstance(record, dict) else []


def _parquet(source: ScaffoldSource, path: Path) -> SampleFile:
    """Describe a Parquet file by its footer."""
    footer = source.read(path, lambda stream, _: read_footer(stream), "parquet file")
    listed = ", ".join(map(format_original, footer.keys)) or "none"
    return SampleFile("parquet", footer.rows, f"{path.name} has the columns {listed}")


_FORMS = {"npz": "npz", "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet"}
_READERS: Mapping[str, Callable[[ScaffoldSource, Path], SampleFile]] = {
    "npz": _arrays, "jsonl": _records, "parquet": _parquet,
}  # fmt: skip
