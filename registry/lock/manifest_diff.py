"""Differences between two manifests: changed values by path, and changed files by role."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from typing import Any

from msgspec import UNSET

from benchlock.artifacts.json_codec import encode_canonical
from benchlock.registry.lock.lockfile import LockedArtifact
from benchlock.registry.manifests import Dataset, Manifest, files_of, holds_path, plain

_LONGEST = 100
"""Maximum characters of a displayed value."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference at ``path``; ``before`` or ``after`` is ``UNSET`` if the value is absent."""

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        """Return the difference as one line."""
        if self.before is UNSET:
            return f"{self.path} added: {format_value(self.after)}"
        if self.after is UNSET:
            return f"{self.path} removed: {format_value(self.before)}"
        return f"{self.path} {format_value(self.before)} → {format_value(self.after)}"


def find_differences(before: Any, after: Any, path: str = "") -> Iterator[Difference]:  # noqa: ANN401 - any plain value
    """Yield the differences of two JSON values, in the order of ``before``.

    Lists of mappings are aligned, so that an inserted step does not change all later ones; their indexes are those in
    ``after``. Other lists differ as a whole.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys((*before, *after)):
            here = f"{path}.{key}" if path else str(key)
            yield from find_differences(before.get(key, UNSET), after.get(key, UNSET), here)
    elif _is_rows(before) and _is_rows(after):
        yield from _align_rows(before, after, path)
    elif before != after:
        yield Difference(path, before, after)


def format_value(value: Any) -> str:  # noqa: ANN401 - any plain value
    """Format a value on one line, shortened if it is long; a step becomes ``resize {size: [8, 8], …}``."""
    text = _format_any(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _format_any(value: Any) -> str:  # noqa: ANN401
    match value:
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case str():
            return value if value.isprintable() and value else json.dumps(value, ensure_ascii=False)
        case {**only} if len(only) == 1 and isinstance(next(iter(only.values())), Mapping):
            name, arguments = next(iter(only.items()))
            return f"{name} {_format_any(arguments)}" if arguments else str(name)
        case Mapping():
            return f"{{{', '.join(f'{key}: {_format_any(part)}' for key, part in value.items())}}}"
        case Sequence():
            return f"[{', '.join(map(_format_any, value))}]"
        case _:
            return str(value)


def _is_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _align_rows(before: Sequence[Any], after: Sequence[Any], path: str) -> Iterator[Difference]:
    matcher = SequenceMatcher(None, [*map(encode_canonical, before)], [*map(encode_canonical, after)], autojunk=False)
    for tag, start, stop, first, last in matcher.get_opcodes():
        if tag == "equal":
            continue
        pairs = min(stop - start, last - first)
        for offset in range(pairs):
            old, new, here = before[start + offset], after[first + offset], f"{path}[{first + offset}]"
            if len(old) == len(new) == 1 and old.keys() != new.keys():  # different steps
                yield Difference(here, old, new)
            else:
                yield from find_differences(old, new, here)
        yield from (Difference(f"{path}[{index}]", before[index], UNSET) for index in range(start + pairs, stop))
        yield from (Difference(f"{path}[{index}]", UNSET, after[index]) for index in range(first + pairs, last))


_LISTED = 5
"""Maximum number of files or values that are listed for a change; the rest is counted."""

_REPORTED_ELSEWHERE = ("schema", "kind", "name", "version", "files", "platforms")
"""Keys of a manifest whose changes appear as changes of the subject, the files, or the locked platforms."""

_TOPICS = (
    (r"(inputs|outputs)\[\d+\]\.tolerance", "tolerance changed"),
    (r"inputs\[\d+\]\.steps", "preprocessing changed"),
    (r"outputs\[\d+\]\.steps", "postprocessing changed"),
    (r"inputs", "inputs changed"),
    (r"outputs", "outputs changed"),
    (r"predictions", "detections changed"),
    (r"framework", "required framework"),
    (r"claims", "claims changed"),
    (r"description", "description changed"),
    (r"tags", "tags changed"),
    (r"attributes", "attributes changed"),
)
"""The title of changes below a path; other changes are titled by their path."""

_TITLE_ONLY = ("description changed", "attributes changed")
"""Topics without their values, which may be long and do not affect results."""

_SOURCES = ("index", "images", "file", "annotations")
"""Keys of a split that name its samples."""


def find_content_changes(before: Manifest, after: Manifest) -> Iterator[str]:
    """Yield the differences of two manifests, except their files.

    An example is ``preprocessing changed: inputs[0].steps[1]…``.
    """
    was, is_ = (
        {key: value for key, value in plain(manifest).items() if key not in _REPORTED_ELSEWHERE}
        for manifest in (before, after)
    )
    changes = sorted(
        ((_topic(difference), difference) for difference in find_differences(was, is_)), key=lambda pair: pair[0][0]
    )
    for (_, topic), group in groupby(changes, key=lambda pair: pair[0]):
        texts = [_describe_difference(difference) for _, difference in group]
        if topic in _TITLE_ONLY:
            yield topic
        elif topic:
            yield f"{topic}: {'; '.join(_shorten_list(texts))}"
        else:
            yield from texts


def find_file_changes(before: LockedArtifact, after: LockedArtifact, uses: Mapping[str, str]) -> Iterator[str]:
    """Yield the changes of files, grouped by use where ``uses`` has their paths, and otherwise by path.

    Args:
        before: The old artifact.
        after: The new artifact.
        uses: The uses of files, by path.
    """
    was, is_ = ({file.path: file.sha256 for file in artifact.files} for artifact in (before, after))
    if was == is_:
        return
    present_uses = [use for path, use in uses.items() if path in was or path in is_]
    for use in dict.fromkeys(present_uses):
        old_files, new_files = (
            {path: sha for path, sha in digests.items() if uses.get(path) == use} for digests in (was, is_)
        )
        yield f"{use} {_fate(old_files, new_files)}"
    yield from _by_path(*({path: sha for path, sha in digests.items() if path not in uses} for digests in (was, is_)))


def list_file_uses(manifest: Manifest) -> dict[str, str]:
    """Return the use of each file that the manifest declares, such as ``weights`` or ``labels of test``, by path."""
    if isinstance(manifest, Dataset):
        return _uses_in_dataset(manifest)
    return {file.path: file.role for file in files_of(manifest) if file.role is not UNSET}


def _topic(difference: Difference) -> tuple[int, str]:
    """Return the position and the title of a change's topic; a change without a topic comes last."""
    for place, (pattern, topic) in enumerate(_TOPICS):
        if re.match(pattern, difference.path):
            return place, topic
    return len(_TOPICS), ""


def _describe_difference(difference: Difference) -> str:
    samples = re.fullmatch(r"splits\.(.+)\.samples", difference.path)
    return f"{samples[1]} has {difference.after} samples, had {difference.before}" if samples else str(difference)


def _uses_in_dataset(dataset: Dataset) -> dict[str, str]:
    references = [("samples", name, getattr(split, key)) for name, split in dataset.splits.items() for key in _SOURCES]
    references += [("labels", name, split.labels) for name, split in dataset.splits.items()]
    references.append(("class names", "", dataset.labels))
    uses: dict[str, str] = {}
    for file in files_of(dataset):
        matches = [
            (what, split) for what, split, path in references if isinstance(path, str) and holds_path(file, path)
        ]
        if len({what for what, _ in matches}) == 1:
            splits = " and ".join(sorted({split for _, split in matches if split}))
            uses[file.path] = f"{matches[0][0]} of {splits}" if splits else matches[0][0]
    order = [what for what, _, _ in references]
    return dict(sorted(uses.items(), key=lambda pair: order.index(pair[1].partition(" of ")[0])))


def _fate(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    if before == after:
        return "unchanged"
    if sorted(before.values()) == sorted(after.values()):
        return "renamed"
    if not (before and after):
        return "added" if after else "removed"
    paths = before.keys() | after.keys()
    changed = sum(before.get(path) != after.get(path) for path in paths)
    return f"changed ({changed} of {len(paths)} files)" if changed < len(paths) else "changed"


def _by_path(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """Yield ``a.txt changed``, ``b.txt added``, …, and the number of unchanged files."""
    fates = {path: _fate(_only(before, path), _only(after, path)) for path in sorted({*before, *after})}
    for fate in ("changed", "added", "removed"):
        if paths := [path for path, path_fate in fates.items() if path_fate == fate]:
            yield f"{' '.join(_shorten_list(paths))} {fate}"
    if same := sum(fate == "unchanged" for fate in fates.values()):
        yield f"{same} other file{'s' if same > 1 else ''} unchanged"


def _shorten_list(texts: list[str]) -> list[str]:
    return texts if len(texts) <= _LISTED else [*texts[:_LISTED], f"and {len(texts) - _LISTED} more"]


def _only(files: Mapping[str, str], path: str) -> Mapping[str, str]:
    return {path: files[path]} if path in files else {}
