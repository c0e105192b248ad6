"""Dataset manifests from an index, arrays, annotations or a folder: format, sample counts and labels."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchlock.artifacts.atomic_files import open_regular
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.file_trees import walk_tree
from benchlock.registry.inspection.dataset_files import idx_sizes
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.untrusted_files import BUDGET, OverBudgetError, read_buffer
from benchlock.registry.scaffold.croissant import croissant_lines, is_croissant
from benchlock.registry.scaffold.sample_files import file_form, file_lines, open_unpacked, split_name
from benchlock.registry.scaffold.sample_index import (
    PICTURES,
    SOUNDS,
    class_folder_lines,
    index_lines,
    is_index,
    labels_lines,
)
from benchlock.registry.scaffold.source_files import ScaffoldSource, heading, require_samples
from benchlock.registry.text.collected_problems import ImportNotes
from benchlock.registry.text.yaml import Lines, block_lines, entry_lines, format_flow

_SHOWN = 10
_ANNOTATIONS = ("annotations", "instances", "coco")
"""Parts of the path of COCO annotations in a folder."""


def dataset_lines(source: ScaffoldSource | None, notes: ImportNotes) -> Lines:
    """Return the manifest of the dataset in a file or folder; only TODO lines without a source."""
    if source is None:
        return [*heading("dataset", None, "", notes), *_bare("no file given", notes)]
    path, form = source.path, file_form(source.path.name)
    is_json = path.is_file() and path.suffix.lower() == ".json"
    if is_json and is_croissant(path):
        return croissant_lines(source)
    lines = heading("dataset", source.name, path.name, notes, name_origin=source.name_origin)
    if path.is_dir():
        return lines + _folder(source)
    if path.suffix.lower() == ".csv":
        return lines + index_lines(source, path)
    if form is not None:
        return lines + file_lines(source, form)
    return lines + (_coco(source, path) if is_json else _idx(source))


def _folder(source: ScaffoldSource) -> Lines:
    """Return the manifest of a folder with an index of its samples; without an index, a TODO line asks for one."""
    files = walk_tree(source.path)
    indices = [place for path, place in files if path.lower().endswith(".csv") and is_index(place)]
    if len(indices) == 1:
        return index_lines(source, indices[0])
    if indices:
        what = f"{source.path.name} has {len(indices)} indices: {', '.join(place.name for place in indices[:_SHOWN])}"
        raise InvalidInputError(what, where=str(source.path), next_step="choose one index file")
    if annotations := list(_find_annotations(files)):
        if len(annotations) == 1:
            return _coco(source, annotations[0])
        listed = ", ".join(place.name for place in annotations[:_SHOWN])
        what = f"{source.path.name} has {len(annotations)} files of annotations: {listed}"
        raise InvalidInputError(what, where=str(source.path), next_step="choose one of these files")
    kinds = {form: [path for path, _ in files if path.lower().endswith(endings)] for form, endings in
             (("image-index", PICTURES), ("wav-index", SOUNDS))}  # fmt: skip
    form = max(kinds, key=lambda candidate: len(kinds[candidate]))
    if not kinds[form]:
        if idx_names := [place.name for _, place in files if _is_pictures(place)]:
            what = f"{source.path.name} contains idx files of pictures: {', '.join(idx_names[:_SHOWN])}"
            raise InvalidInputError(what, where=str(source.path), next_step="choose one of these files")
        return [*_bare(f"{source.path.name} contains no pictures, no audio files and no index", source.notes)]
    samples, notes = kinds[form], source.notes
    lines = class_folder_lines(source, form, samples)
    if not isinstance(lines, str):
        return lines
    what = f"{source.path.name} contains {len(samples)} sample files, but nothing labels them: no index, and {lines}"
    ask = "put the files of each class into a folder with its name, or write a CSV with the columns path and label "
    ask += "and use it instead of the folder; or list the CSV in files, and reference it here: "
    ask += f"{{NAME: {{index: FILE, samples: {len(samples)}}}}}"
    todo = notes.todo("splits", "splits", "splits", what, ask)
    return [*entry_lines("format", form), todo, *block_lines("files", source.file(source.path))]


def _is_pictures(path: Path) -> bool:
    """Return whether a file is an idx file of pictures."""
    with open_unpacked(path) as stream:
        try:
            return len(idx_sizes(stream)) > 1
        except MalformedError:
            return False


def _find_annotations(files: tuple[tuple[str, Path], ...]) -> Iterator[Path]:
    """Yield the files in a folder that have the name of COCO annotations, and list pictures."""
    for path, place in files:
        lowered = path.lower()
        if lowered.endswith(".json") and any(part in lowered for part in _ANNOTATIONS):
            try:
                _read_pictures(place)
            except InvalidInputError:
                continue
            yield place


class _Picture(msgspec.Struct):
    file_name: str


class _Pictures(msgspec.Struct):
    """The part of COCO annotations that names the pictures."""

    images: list[_Picture]


def _read_pictures(path: Path) -> list[str]:
    """Return the names of the pictures in COCO annotations."""
    with open_regular(path) as stream:
        try:
            annotations = msgspec.json.decode(read_buffer(stream, BUDGET.annotations), type=_Pictures)
        except (msgspec.MsgspecError, UnicodeDecodeError, OverBudgetError, RecursionError) as error:
            what = f"{path.name} is not a valid COCO annotation file: {error}"
            raise InvalidInputError(what, where=str(path), next_step="choose another file") from error
    return [picture.file_name for picture in annotations.images]


def _coco(source: ScaffoldSource, path: Path) -> Lines:
    """Return the manifest of COCO annotations; the usual folders are ``annotations/`` and that of the pictures."""
    notes, names = source.notes, _read_pictures(path)
    require_samples(path, len(names))
    places = [path.parent, *sorted(path.parent.iterdir())]
    if path.parent.name == "annotations":
        places += sorted(path.parent.parent.iterdir())
    folders = [place for place in places if place.is_dir()]
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
    splits = block_lines("splits", block_lines(split_name(path, notes), [*split, f"samples: {len(names)}"]))
    return ["format: coco", *splits, *block_lines("files", files)]


def _idx(source: ScaffoldSource) -> Lines:
    """Return the manifest of an idx file of pictures."""
    path = source.path
    with open_unpacked(path) as stream:
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
    names, more = labels_lines(source, path.parent, [], tree=False)
    splits = block_lines("splits", block_lines(split_name(path, notes), [*split, f"samples: {sizes[0]}"]))
    return ["format: idx", *splits, *names, *block_lines("files", [*files, *more])]


def _labels_of(path: Path, count: int) -> Path | None:
    """Return the labels file whose name differs from the pictures' like MNIST's files, if it has as many labels."""
    labels_file = path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1"))
    if labels_file == path or not labels_file.is_file():
        return None
    with open_unpacked(labels_file) as stream:
        try:
            return labels_file if idx_sizes(stream) == (count,) else None
        except MalformedError:
            return None


def _bare(what: str, notes: ImportNotes) -> Lines:
    """Return the TODO lines of a dataset about which nothing is known."""
    forms = "image-index, wav-index, idx, npz, jsonl, parquet or coco"
    return [
        notes.todo("format", "format", "format", what, f"write {forms}"),
        notes.todo("splits", "splits", "splits", what, "write each with its files and samples (their number)"),
        notes.todo("files", "no-files", "files", what, "list each with path and source"),
    ]
