"""Dataset manifests of files that an index lists: a CSV, or folders that are the classes of their files."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from benchlock.artifacts.atomic_files import open_regular
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.file_trees import walk_tree
from benchlock.registry.inspection.formats.untrusted_files import BUDGET, OverBudgetError, read_text_lines, read_whole
from benchlock.registry.inspection.label_files import is_number
from benchlock.registry.manifests import Dataset
from benchlock.registry.scaffold.sample_files import SPLITS, split_name
from benchlock.registry.scaffold.source_files import ScaffoldSource, require_samples
from benchlock.registry.text.collected_problems import format_original
from benchlock.registry.text.yaml import Lines, block_lines, entry_lines, format_flow

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
SOUNDS = (".wav",)
_LABEL_FILES = ("labels.txt", "classes.txt", "names.txt")
_LABELS = "labels.txt"
_SHOWN = 10
_PATHS = ("path", "file_name", "filename", "file", "image", "image_path", "filepath")
"""Columns of files, in lower case; an index of benchlock has the first."""
_CLASSES = ("label", "class", "class_name", "category")
"""Columns of labels, in lower case; an index of benchlock has the first."""
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of an index by name; None if there is none."""

    path: str
    label: str | None
    mask: str | None

    @property
    def are_native(self) -> bool:
        """Whether the columns are those of an index as manifests have it."""
        return self.path == "path" and self.label in (None, "label")


Row = tuple[str, str, str]
"""The path, label and mask of a sample; the last two may be empty."""


def index_lines(source: ScaffoldSource, path: Path, columns: Columns | None = None) -> Lines:
    """Return the manifest of an index: its samples are counted, and the folders around them become trees.

    Args:
        source: The file or folder of the dataset.
        path: The index.
        columns: Its columns if they are known; an index with other names is converted.

    Raises:
        InvalidInputError: The file is not an index.
    """
    columns = columns or find_columns(path)
    rows, notes = list(read_rows(path, columns)), source.notes
    require_samples(path, len(rows))
    endings = {PurePosixPath(row[0]).suffix.lower() for row in rows}
    form = "image-index" if endings <= set(PICTURES) else "wav-index" if endings <= set(SOUNDS) else None
    lines = entry_lines("format", form) if form else [
        notes.todo("format", "format", "format", "files have several extensions", "write image-index or wav-index")
    ]  # fmt: skip
    folder, split = path.parent, split_name(path, notes)
    is_tree = any("/" not in row[0] for row in rows)
    if is_tree:  # samples beside the index: list the folder as one tree
        index_path, files = f"{folder.name}/{path.name}", source.file(folder)
    else:
        top_folders = dict.fromkeys(name.split("/")[0] for row in rows for name in (row[0], row[2]) if "/" in name)
        index_path, files = path.name, [] if not columns.are_native else source.file(path)
        files += [line for top in top_folders for line in source.file(folder / top, called=f"{top}/")]
    if not columns.are_native:
        what = f"{path.name} has the columns {columns.path} and {columns.label or 'no label'}"
        notes.tell("splits", "splits", what, "converted to path and label")
        prefix, index_path = f"{folder.name}/" if is_tree else "", f"{split}.csv"
        files += source.generated_file(index_path, _index_text(rows, prefix))
    lines += block_lines("splits", [f"{split}: {format_flow({'index': index_path, 'samples': len(rows)})}"])
    labels, more = labels_lines(source, folder, [row[1] for row in rows], tree=is_tree)
    return [*lines, *labels, *block_lines("files", [*files, *more])]


def labels_lines(source: ScaffoldSource, folder: Path, labels: list[str], *, tree: bool) -> tuple[Lines, Lines]:
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
    if labels_file is not None and set(names) <= set(read_names(labels_file)):
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


def class_folder_lines(source: ScaffoldSource, form: str, samples: Sequence[str]) -> Lines | str:
    """Return the manifest of a folder whose inner folders are the classes of their files, one split for each above.

    The classes are sorted by name, as by torchvision's ImageFolder and the Hub's imagefolder.

    Args:
        source: The folder.
        form: The format of the dataset.
        samples: The paths of the samples in the folder.

    Returns:
        The lines; or, if the folders are not certainly classes, the reason.
    """
    parts = [path.split("/") for path in samples]
    tops = {part[0].lower() for part in parts if len(part) > 1}
    first = 1 if tops and tops <= set(SPLITS) else 0
    if any(len(part) < first + 2 for part in parts):
        return "not every file is in the folder of a class" if tops else "no folders that may be classes"
    classes = sorted({part[first] for part in parts})
    parents = {source.path / part[0] for part in parts} if first else {source.path}
    if reason := _class_fault(classes) or _extra_folder(parents, classes):
        return reason
    rows: dict[str, list[Row]] = {}
    for path, part in zip(samples, parts, strict=True):
        split = part[0].lower() if first else "all"
        rows.setdefault(split, []).append((f"{source.path.name}/{path}", part[first], ""))
    if not first:
        rows = {split_name(source.path, source.notes): rows["all"]}
    return _class_lines(source, form, rows, classes)


def _class_fault(classes: Sequence[str]) -> str:
    """Return why the names of folders are not those of classes; empty if they are."""
    if len(classes) < 2:  # noqa: PLR2004 - one class is nothing to tell apart
        return f"all are in one folder, {format_original(classes[0])}: classification needs at least two classes"
    if any(not name.isprintable() or name != name.strip() for name in classes):
        return "the name of a folder has spaces at its ends, or is not printable"
    if hidden := next((name for name in classes if name.startswith((".", "__"))), None):
        return f"the folder {format_original(hidden)} is one that a program hides"
    # A label of digits is an index. The names 0 to 9 equal their indices in every order.
    if any(map(_INTEGER.fullmatch, classes)) and classes != [str(index) for index in range(len(classes))]:
        return "folders with numbers for names may be sorted as numbers or as texts"
    return ""


def _extra_folder(parents: Iterable[Path], classes: Sequence[str]) -> str:
    """Return why a folder beside the classes may be a class without samples, which would shift the indices."""
    names = {entry.name for parent in parents for entry in parent.iterdir() if entry.is_dir()}
    empty = sorted(name for name in names.difference(classes) if not name.startswith((".", "__")))
    return f"the folder {format_original(empty[0])} has no samples, but may be a class" if empty else ""


def _class_lines(source: ScaffoldSource, form: str, rows: Mapping[str, Sequence[Row]], classes: Sequence[str]) -> Lines:
    """Return the manifest of class folders, with an index for each split and the labels."""
    notes, files, splits = source.notes, source.file(source.path), Lines()
    shown = ", ".join(map(format_original, classes[:_SHOWN])) + (" and others" if len(classes) > _SHOWN else "")
    notes.tell("splits", "splits", f"{len(classes)} folders are the classes: {shown}", "written as labels")
    for split, entries in rows.items():
        path = f"{split}.csv"
        files += source.generated_file(path, _index_text(entries, ""))
        splits.append(f"{split}: {format_flow({'index': path, 'samples': len(entries)})}")
    beside = _find_labels_file(source.path.parent, classes)
    if beside is not None:
        what = f"{beside.name} is in the same folder and has every class"
        notes.tell("labels", "labels", what, "used as the labels")
        path, more = beside.name, source.file(beside)
    else:
        notes.tell("labels", "labels", "the classes in the order of their names", f"called {_LABELS} in the dataset")
        path, more = _LABELS, source.generated_file(_LABELS, "".join(f"{name}\n" for name in classes))
    lines = [*entry_lines("format", form), *block_lines("splits", splits), *entry_lines("labels", path)]
    return [*lines, *block_lines("files", [*files, *more])]


def find_unlisted(dataset: Dataset, folder: Path) -> list[str]:
    """Return the samples in local class folders that their generated index does not list, by path in the dataset.

    Args:
        dataset: The manifest.
        folder: The folder of the manifest.

    Raises:
        InvalidInputError: An index is not CSV.
    """
    endings = {"image-index": PICTURES, "wav-index": SOUNDS}.get(dataset.format, ())
    places = {file.path: folder / str(file.source).removeprefix("file:") for file in dataset.files}
    trees = {path: place for path, place in places.items() if path.endswith("/") and place.is_dir()}
    indices = [places.get(str(split.index)) for split in dataset.splits.values()]
    generated = tuple(f"{place.name}." for place in trees.values())
    listed = set[str]()
    for index in indices:
        if index is None or index.parent != folder or not index.name.startswith(generated) or not index.is_file():
            return []
        listed.update(name for path, _, mask in read_rows(index, find_columns(index)) for name in (path, mask))
    samples = (path + name for path, place in trees.items() for name, _ in walk_tree(place))
    return [sample for sample in samples if sample.lower().endswith(endings) and sample not in listed]


def _find_labels_file(folder: Path, names: Sequence[str]) -> Path | None:
    """Return the first labels file in a folder, if it has all names."""
    path = next((folder / name for name in _LABEL_FILES if (folder / name).is_file()), None)
    return path if path is not None and set(names) <= set(read_names(path)) else None


def read_names(path: Path) -> list[str]:
    """Return the lines of a labels file without surrounding spaces.

    Raises:
        InvalidInputError: The file is too large, or is not UTF-8.
    """
    with open_regular(path) as stream:
        try:
            return [line.strip() for line in read_whole(stream, BUDGET.document).decode("utf-8").splitlines()]
        except (OverBudgetError, UnicodeDecodeError) as error:
            what = f"{path.name} is not a labels file: {error}"
            raise InvalidInputError(what, where=str(path), next_step="write one name per line, in UTF-8") from error


def _index_text(rows: Sequence[Row], prefix: str) -> str:
    """Return an index with the columns path and label, and mask if a row has one; ``prefix`` begins each path."""
    with_masks = any(mask for _, _, mask in rows)
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("path", "label", "mask") if with_masks else ("path", "label"))
    for path, label, mask in rows:
        masks = (prefix + mask if mask else "",) if with_masks else ()
        writer.writerow((prefix + path, label, *masks))
    return text.getvalue()


def find_columns(path: Path) -> Columns:
    """Return the columns of an index; another name than ``path`` counts if the first row names a file there.

    Raises:
        InvalidInputError: The file is not CSV, or its columns are not those of an index.
    """
    with _open_table(path) as reader:
        names = list(reader.fieldnames or ())
        if "path" in names:
            return Columns("path", "label" if "label" in names else None, "mask" if "mask" in names else None)
        first = next(reader, None) or {}
    plain = {name.strip().lower(): name for name in names if name}
    files = [plain[name] for name in _PATHS if name in plain and _is_sample(path.parent, first.get(plain[name]))]
    labels = [plain[name] for name in _CLASSES if name in plain]
    if len(files) != 1 or len(labels) > 1:
        listed = ", ".join(map(format_original, names[:_SHOWN])) or "none"
        what = f"{path.name} has no column 'path'; it has {listed}"
        raise InvalidInputError(what, where=str(path), next_step="write the columns path,label")
    return Columns(files[0], labels[0] if labels else None, plain.get("mask"))


def _is_sample(folder: Path, name: str | None) -> bool:
    """Return whether a value of a table is the path of a sample from the folder of the table."""
    return bool(name) and str(name).lower().endswith((*PICTURES, *SOUNDS)) and (folder / str(name)).is_file()


def read_rows(path: Path, columns: Columns) -> Iterator[Row]:
    """Yield path, label and mask of every row of an index.

    Raises:
        InvalidInputError: The file is not CSV, or has none of these columns.
    """
    with _open_table(path) as reader:
        missing = {columns.path, columns.label, columns.mask} - {None, *(reader.fieldnames or ())}
        if missing:
            what = f"{path.name} has no column {min(map(str, missing))!r}"
            raise InvalidInputError(what, where=str(path), next_step="write the columns path,label")
        for row in reader:
            label, mask = (row.get(name or "") or "" for name in (columns.label, columns.mask))
            yield row[columns.path] or "", label.strip(), mask.strip()


@contextmanager
def _open_table(path: Path) -> Iterator["csv.DictReader[str]"]:
    """Open a CSV file with a header."""
    with open_regular(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
        try:
            yield csv.DictReader(read_text_lines(text, BUDGET.line))
        except (csv.Error, UnicodeDecodeError, OverBudgetError) as error:
            raise InvalidInputError(f"{path.name} is not UTF-8 CSV: {error}", where=str(path)) from error


def is_index(path: Path) -> bool:
    """Return whether a CSV file is an index."""
    try:
        find_columns(path)
    except InvalidInputError:
        return False
    return True
