"""Dataset manifests from an index, arrays or a folder: format, sample counts and labels."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

import msgspec

from benchlock.artifacts.atomic_files import open_regular
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.file_trees import walk_tree
from benchlock.registry.inspection.dataset_files import idx_sizes
from benchlock.registry.inspection.formats.parquet import read_footer
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.tensor_files import read_arrays
from benchlock.registry.inspection.label_files import is_number
from benchlock.registry.scaffold.source_files import ScaffoldSource, heading, require_samples
from benchlock.registry.text.collected_problems import ImportNotes, format_original, printable
from benchlock.registry.text.yaml import Lines, block_lines, entry_lines, format_flow

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
SOUNDS = (".wav",)
_SPLITS = ("train", "test", "val", "validation", "dev")
_LABEL_FILES = ("labels.txt", "classes.txt", "names.txt")
_LARGEST = 1 << 31  # bytes of JSON
_SHOWN = 10


def dataset_lines(source: ScaffoldSource | None, notes: ImportNotes) -> Lines:
    """Return the manifest of the dataset in a file or folder; only TODO lines without a source."""
    if source is None:
        return [*heading("dataset", None, "", notes), *_bare("no file given", notes)]
    path, ending = source.path, source.path.name.removesuffix(".gz").rpartition(".")[2].lower()
    lines = heading("dataset", source.name, path.name, notes)
    if path.is_dir():
        return lines + _folder(source)
    readers: dict[str, Callable[[ScaffoldSource], Lines]] = {
        "csv": lambda source: _index(source, source.path),
        "npz": _arrays,
        "jsonl": _records,
        "ndjson": _records,
        "json": _coco,
        "parquet": _parquet,
    }
    return lines + (readers[ending](source) if ending in readers else _idx(source))


def _folder(source: ScaffoldSource) -> Lines:
    """Return the manifest of a folder with an index of its samples; without an index, a TODO line asks for one."""
    files = walk_tree(source.path)
    indices = [place for path, place in files if path.lower().endswith(".csv") and _has_paths(place)]
    if len(indices) == 1:
        return _index(source, indices[0])
    if indices:
        what = f"{source.path.name} has {len(indices)} indices: {', '.join(place.name for place in indices[:_SHOWN])}"
        raise InvalidInputError(what, where=str(source.path), next_step="choose one index file")
    kinds = {form: [path for path, _ in files if path.lower().endswith(endings)] for form, endings in
             (("image-index", PICTURES), ("wav-index", SOUNDS))}  # fmt: skip
    form = max(kinds, key=lambda candidate: len(kinds[candidate]))
    if not kinds[form]:
        if idx_names := [place.name for _, place in files if _is_pictures(place)]:
            what = f"{source.path.name} contains idx files of pictures: {', '.join(idx_names[:_SHOWN])}"
            raise InvalidInputError(what, where=str(source.path), next_step="choose one of these files")
        return [*_bare(f"{source.path.name} contains no pictures, no audio files and no index", source.notes)]
    samples, notes = kinds[form], source.notes
    classes = sorted({path.split("/")[0] for path in samples if "/" in path})
    what = f"{source.path.name} contains {len(samples)} sample files, but no index"
    if classes:
        listed = f"{', '.join(map(format_original, classes[:_SHOWN]))}{' and others' if len(classes) > _SHOWN else ''}"
        what += f", in the folders {listed}, which may be the labels"
    ask = "write a CSV with the columns path and label, list it in files, and reference it here: "
    ask += f"{{NAME: {{index: FILE, samples: {len(samples)}}}}}"
    todo = notes.todo("splits", "splits", "splits", what, ask)
    return [*entry_lines("format", form), todo, *block_lines("files", source.file(source.path))]


def _is_pictures(path: Path) -> bool:
    """Return whether a file is an idx file of pictures."""
    with _unpacked(path) as stream:
        try:
            return len(idx_sizes(stream)) > 1
        except MalformedError:
            return False


def _index(source: ScaffoldSource, path: Path) -> Lines:
    """Return the manifest of an index: its samples are counted, and the folders around them become trees."""
    rows, notes = list(_rows(path)), source.notes
    require_samples(path, len(rows))
    endings = {PurePosixPath(row[0]).suffix.lower() for row in rows}
    form = "image-index" if endings <= set(PICTURES) else "wav-index" if endings <= set(SOUNDS) else None
    lines = entry_lines("format", form) if form else [
        notes.todo("format", "format", "format", "files have several extensions", "write image-index or wav-index")
    ]  # fmt: skip
    folder = path.parent
    if any("/" not in row[0] for row in rows):  # samples beside the index: list the folder as one tree
        index_path, files = f"{folder.name}/{path.name}", source.file(folder)
    else:
        top_folders = dict.fromkeys(name.split("/")[0] for row in rows for name in (row[0], row[2]) if "/" in name)
        index_path, files = path.name, source.file(path)
        files += [line for top in top_folders for line in source.file(folder / top, called=f"{top}/")]
    lines += block_lines(
        "splits", [f"{_split(path, notes)}: {format_flow({'index': index_path, 'samples': len(rows)})}"]
    )
    labels, more = _labels(source, folder, [row[1] for row in rows], tree=index_path != path.name)
    return [*lines, *labels, *block_lines("files", [*files, *more])]


def _labels(source: ScaffoldSource, folder: Path, labels: list[str], *, tree: bool) -> tuple[Lines, Lines]:
    """Return the key ``labels`` and the entry of its file.

    They are required if labels are names, and found if a file beside the samples has all of them.

    Args:
        source: The file or folder of the dataset.
        folder: The folder that may have a labels file.
        labels: The labels of the samples.
        tree: Whether the folder is listed as a tree.
    """
    names = sorted({label for label in labels if label and not (label.isascii() and label.isdigit())})
    labels_file = next((folder / name for name in _LABEL_FILES if (folder / name).is_file()), None)
    if labels_file is not None and set(names) <= {line.strip() for line in labels_file.read_text("utf-8").splitlines()}:
        path, notes = f"{folder.name}/{labels_file.name}" if tree else labels_file.name, source.notes
        lines = entry_lines("labels", path)
        if names:
            notes.tell(
                "labels",
                "labels",
                f"{labels_file.name} is in the same folder and has every label",
                "used as the labels",
            )
        else:
            what = f"{labels_file.name} is in the same folder, and the labels are indices"
            ask = "check that its line i names class i, then delete this line; or delete both, and the file"
            lines.insert(0, notes.todo("labels", "labels", "confirm", what, ask))
        return lines, [] if tree else source.file(labels_file)
    if not names or all(map(is_number, names)):
        return [], []
    what = f"the index has {len(names)} labels: {', '.join(map(format_original, names[:_SHOWN]))}"
    ask = "write them to a file, one per line (line i is index i); list it in files, and write labels: FILE"
    return [source.notes.todo("labels", "labels", "labels", what, ask)], []


def _arrays(source: ScaffoldSource) -> Lines:
    """Return the manifest of an npz file."""
    notes = source.notes
    arrays = source.read(source.path, lambda stream, _: read_arrays(stream), "npz file")
    counts = {array.shape[0] if array.shape else 0 for array in arrays}
    listed = ", ".join(f"{printable(array.name)} {array.descr} {list(array.shape)}" for array in arrays)
    what = f"{source.path.name} contains {listed or 'no array'}"
    return _one_file(source, "npz", what, next(iter(counts)) if len(counts) == 1 else None, notes)


def _records(source: ScaffoldSource) -> Lines:
    """Return the manifest of a file with one JSON object per line."""
    count, keys = 0, list[str]()
    with _unpacked(source.path) as stream:
        for line in stream:
            if line.strip():
                count += 1
                keys = keys or _keys(line, source.path)
    what = f"the first line has the keys {', '.join(map(format_original, keys)) or 'none'}"
    return _one_file(source, "jsonl", what, count, source.notes)


def _keys(line: bytes, path: Path) -> list[str]:
    """Return the keys of a line."""
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path.name} is not JSON Lines: {error}", where=str(path)) from error
    return list(record) if isinstance(record, dict) else []


def _parquet(source: ScaffoldSource) -> Lines:
    """Return the manifest of a parquet file."""
    footer = source.read(source.path, lambda stream, _: read_footer(stream), "parquet file")
    what = f"{source.path.name} has the columns {', '.join(map(format_original, footer.keys)) or 'none'}"
    return _one_file(source, "parquet", what, footer.rows, source.notes)


def _one_file(source: ScaffoldSource, form: str, what: str, samples: int | None, notes: ImportNotes) -> Lines:
    """Return the manifest of a split in one file, whose fields only its author knows.

    Args:
        source: The file.
        form: The format of the dataset.
        what: What is known about the fields.
        samples: The number of samples; None if it is unknown.
        notes: Receives the findings.
    """
    require_samples(source.path, samples)
    split = [f"file: {format_flow(source.path.name)}"]
    ask = "write fields: {FIELD: KEY, label: KEY}, such as {image: x_test, label: y_test}; omit label if there is none"
    split.append(notes.todo("splits.fields", "fields", "fields", what, ask))
    if samples is None:
        split.append(notes.todo("splits.samples", "samples", "samples", "cannot be determined", "count them"))
    else:
        split.append(f"samples: {samples}")
    splits = block_lines("splits", block_lines(_split(source.path, notes), split))
    return [*entry_lines("format", form), *splits, *block_lines("files", source.file(source.path))]


def _coco(source: ScaffoldSource) -> Lines:
    """Return the manifest of COCO annotations."""
    notes, path = source.notes, source.path
    with open_regular(path) as stream:
        try:
            images = json.loads(stream.read(_LARGEST))["images"]
            names = [str(picture["file_name"]) for picture in images]
        except (ValueError, KeyError, TypeError) as error:
            what = f"{path.name} is not a valid COCO annotation file: {error}"
            raise InvalidInputError(what, where=str(path), next_step="choose another file") from error
    require_samples(path, len(names))
    folders = [folder for folder in (path.parent, *sorted(path.parent.iterdir())) if folder.is_dir()]
    picture_folder = next((folder for folder in folders if names and (folder / names[0]).is_file()), None)
    split = [f"annotations: {format_flow(path.name)}"]
    files = source.file(path)
    if picture_folder is None or picture_folder == path.parent:
        what = (
            "no folder beside the annotations contains the pictures"
            if picture_folder is None
            else "the pictures are beside them"
        )
        ask = "move the pictures into a folder, list it in files, and write images: FOLDER/"
        split.append(notes.todo("splits.images", "splits", "images", what, ask))
    else:
        split.append(f"images: {format_flow(f'{picture_folder.name}/')}")
        files += source.file(picture_folder)
    splits = block_lines("splits", block_lines(_split(path, notes), [*split, f"samples: {len(names)}"]))
    return ["format: coco", *splits, *block_lines("files", files)]


def _idx(source: ScaffoldSource) -> Lines:
    """Return the manifest of an idx file of pictures."""
    path = source.path
    with _unpacked(path) as stream:
        try:
            sizes = idx_sizes(stream)
        except MalformedError as error:
            what = f"unknown file type: {path.name}"
            ask = "choose an index (.csv), an idx, npz, jsonl, parquet or COCO file, or a folder of pictures"
            raise InvalidInputError(what, where=str(path), next_step=ask) from error
    if len(sizes) == 1:
        what = f"{path.name} contains {sizes[0]} labels, but no pictures"
        raise InvalidInputError(what, where=str(path), next_step="choose the file of the pictures")
    split, files, notes = [f"images: {format_flow(path.name)}"], source.file(path), source.notes
    labels = _labels_of(path, sizes[0])
    if labels is None:
        what = f"no file in the same folder has {sizes[0]} labels"
        ask = "write labels: FILE and list it in files, or delete this line for an unlabelled split"
        split.append(notes.todo("splits.labels", "labels", "labels", what, ask))
    else:
        notes.tell(
            "splits.labels",
            "labels",
            f"{labels.name} is in the same folder and has the same number of labels",
            "used as the labels",
        )
        split.append(f"labels: {format_flow(labels.name)}")
        files += source.file(labels)
    names, more = _labels(source, path.parent, [], tree=False)
    splits = block_lines("splits", block_lines(_split(path, notes), [*split, f"samples: {sizes[0]}"]))
    return ["format: idx", *splits, *names, *block_lines("files", [*files, *more])]


def _labels_of(path: Path, count: int) -> Path | None:
    """Return the labels file whose name differs from the pictures' like MNIST's files, if it has as many labels."""
    labels_file = path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1"))
    if labels_file == path or not labels_file.is_file():
        return None
    with _unpacked(labels_file) as stream:
        try:
            return labels_file if idx_sizes(stream) == (count,) else None
        except MalformedError:
            return None


def _split(path: Path, notes: ImportNotes) -> str:
    """Return the name of a split: a usual name that is part of the file's, else ``all``."""
    words = path.name.lower().replace("-", ".").replace("_", ".").split(".")
    name = next((split for split in _SPLITS if split in words), "all")
    notes.tell("splits", "splits", f"one split, of {path.name}", f"called {name}")
    return name


def _rows(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield path, label and mask of every row of an index."""
    with open_regular(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        try:
            reader = csv.DictReader(text)
            if "path" not in (reader.fieldnames or ()):
                what = f"{path.name} has no column 'path'"
                raise InvalidInputError(what, where=str(path), next_step="write the columns path,label")
            for row in reader:
                yield row["path"] or "", (row.get("label") or "").strip(), (row.get("mask") or "").strip()
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidInputError(f"{path.name} is not UTF-8 CSV: {error}", where=str(path)) from error


def _has_paths(path: Path) -> bool:
    """Return whether a CSV file is an index."""
    try:
        next(_rows(path), None)
    except InvalidInputError:
        return False
    return True


@contextmanager
def _unpacked(path: Path) -> Iterator[BinaryIO]:
    """Open a file, decompressed if it is gzip."""
    with open_regular(path) as stream:
        packed = stream.read(2) == b"\x1f\x8b"
        stream.seek(0)
        try:
            yield cast("BinaryIO", gzip.GzipFile(fileobj=stream)) if packed else stream
        except (OSError, EOFError) as error:
            raise InvalidInputError(f"{path.name} cannot be unpacked: {error}", where=str(path)) from error


def _bare(what: str, notes: ImportNotes) -> Lines:
    """Return the TODO lines of a dataset about which nothing is known."""
    forms = "image-index, wav-index, idx, npz, jsonl, parquet or coco"
    return [
        notes.todo("format", "format", "format", what, f"write {forms}"),
        notes.todo("splits", "splits", "splits", what, "write each with its files and samples (their number)"),
        notes.todo("files", "no-files", "files", what, "list each with path and source"),
    ]
