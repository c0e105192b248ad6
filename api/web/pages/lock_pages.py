"""The pages of locks: one lock with the reasons for its versions, and the differences between two."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any, Final

from msgspec import UNSET

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.choices import list_lock_isolations, list_run_options
from benchlock.api.web.links import lock_diff_path, lock_path, with_query
from benchlock.api.web.page import Page
from benchlock.api.web.pages.compare_pages import offer_interleaving
from benchlock.api.web.run_lists import RUN_COLUMNS, list_run_rows
from benchlock.artifacts.errors import BenchlockError
from benchlock.artifacts.size_limits import shorten
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_comparison import question_differences
from benchlock.evaluator.records.run_texts import describe_question, describe_subject
from benchlock.evaluator.records.run_types import Run, RunFilter
from benchlock.registry.artifact_names import Kind, parse_reference
from benchlock.registry.lock.lock_creation import check_own_request, explain_locked_version, known_manifests
from benchlock.registry.lock.lock_diff import diff
from benchlock.registry.lock.lockfile import Lock, LockedFile, LockedPlatform, dump, title
from benchlock.registry.requests.request_form import read_document

RUNS: Final = 10
_ARTIFACTS: Final = (
    Column("artifact", None, "Kind, name and locked version."),
    Column("manifest", None, "The digest of its manifest."),
    Column("files", None, "Number of files; of an image, wheels and their locks."),
    Column("size", "B", "Bytes of the files."),
)
_PLATFORMS: Final = (
    Column("platform", None, "OS/ARCH/DEVICE."),
    Column("python", None, "The version of Python."),
    Column("environment", None, "Wheels, or the reference of a finished image."),
    Column("image id", None, "The digest of the configuration of the image, for containers."),
    Column("layers", None, "Number of layers; without layers, it runs only as a process."),
    Column("size", "B", "Bytes of the layers."),
)
_CHANGES: Final = (
    Column("change", None, "Whether the subject was added, removed or changed."),
    Column("subject", None, "The artifact or the setting."),
    Column("before", None, "In the first lock."),
    Column("after", None, "In the second lock."),
    Column("details", None, "What that means."),
)


_COMPARED_LINES: Final = 4_000
"""The maximum number of lines of a lock file that are compared line by line."""
_SHOWN_LINES: Final = 400
"""The maximum number of lines of a line diff on the page."""
_SHOWN_CHARACTERS: Final = 500
"""The maximum number of characters of such a line."""


@dataclass(frozen=True, slots=True)
class StaleCheck:
    """The answer of ``benchlock lock --check`` for a lock and the request in it.

    Attributes:
        fresh: Whether the lock satisfies its request; None if that could not be checked.
        reasons: Why it does not, or why it could not be checked.
        warnings: What to know about a lock that does, such as a yanked version.
        moved: The versions that a new lock of the request would have in place of the locked ones.
    """

    fresh: bool | None
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    moved: tuple[str, ...] = ()


def check_stale(registry: LocalRegistry, lock: Lock) -> StaleCheck:
    """Check whether a lock still satisfies the request that it contains."""
    try:
        freshness, moved = check_own_request(lock, registry.catalogue)
    except BenchlockError as error:
        return StaleCheck(None, (error.what,))
    return StaleCheck(freshness.fresh, freshness.reasons, freshness.warnings, moved)


def read_lock(registry: LocalRegistry, text: str) -> Lock:
    """Return the lock whose id is ``text`` or begins with it; its content is compared with its id.

    Raises:
        InvalidInputError: The text is no id, or several ids begin with it.
        UnknownNameError: There is no such lock.
        BenchlockError: The stored content is not that of the id.
    """
    return registry.read_lock(registry.catalogue.find_lock(text))


def make_lock(registry: LocalRegistry, queue: SqlQueue, text: str, isolation: str = "") -> Page:
    """Make the page of a lock; raise as ``read_lock``.

    Args:
        registry: The registry.
        queue: Its queue, which may run the lock.
        text: The id of the lock, or the beginning of it.
        isolation: The chosen isolation of its next run.
    """
    lock = read_lock(registry, text)
    runs = registry.records.list_entries(chosen=RunFilter(lock=lock.id), limit=RUNS)
    last = runs[0] if runs else None
    context: dict[str, Any] = {
        "lock": lock,
        "summary": describe_subject(lock),
        "facts": tuple(_list_facts(lock)),
        "check": check_stale(registry, lock),
        "reasons": tuple(_explain(registry, lock)),
        "change": request_path(lock),
        "download": f"{lock_path(lock.id)}.toml",
        "others": tuple(_list_others(registry, lock)),
        "isolations": list_lock_isolations(registry, queue, lock, isolation),
        "last": last.id if last else "",
        "options": list_run_options(registry, lock, last.start.isolation) if isinstance(last, Run) else "",
        "all_runs": with_query("/runs", lock=lock.id) if len(runs) == RUNS else "",
    }
    tables = {
        "artifacts": _tabulate_artifacts(lock),
        "platforms": _tabulate_platforms(lock),
        "runs": Table("runs", "Runs of this lock, newest first", RUN_COLUMNS, list_run_rows(registry, runs)),
    }
    return Page("lock", f"Lock {lock.id[:19]}…", context, tables, f"/v1{lock_path(lock.id)}", (("/runs", "Runs"),))


def _list_others(registry: LocalRegistry, lock: Lock) -> Iterator[str]:
    """Yield the ids of the newest other locks with the same version of the dataset or of the operator."""
    artifacts = lock.artifacts()
    kind: Kind = "dataset" if "dataset" in artifacts else "operator"
    reference = parse_reference(title(kind, artifacts[kind]))
    for other in registry.catalogue.list_locks_with(reference, RUNS + 1).locks:
        if other.id != lock.id:
            yield other.id


def request_path(lock: Lock) -> str | None:
    """Return the path of the form with the request of a lock, to change it; None for a lock of an operator."""
    if lock.model is UNSET:
        return None
    return with_query("/new", **read_document(lock.request, lock.framework.name).as_parameters())


def write_lock(registry: LocalRegistry, text: str) -> tuple[str, bytes]:
    """Return a file name for a lock and the content of its file; raise as ``read_lock``."""
    lock = read_lock(registry, text)
    return f"{lock.id.removeprefix('sha256:')[:12]}.lock", dump(lock).encode()


def make_lock_diff(registry: LocalRegistry, before: str, after: str, queue: SqlQueue | None = None) -> Page:
    """Make the page of the differences between two locks.

    Args:
        registry: The registry.
        before: The id of the first lock, or the beginning of it.
        after: The same of the second lock.
        queue: The queue in which both may run in turn; without one, the page has no form for that.

    Raises:
        BenchlockError: As ``read_lock`` raises.
    """
    first, second = read_lock(registry, before), read_lock(registry, after)
    changes = diff(first, second, known_manifests((first, second), registry.store))
    rows = tuple(
        (_name_change(one.before, one.after), one.subject, one.before, one.after, "; ".join(one.details))
        for one in changes
    )
    context = {
        "before": first,
        "after": second,
        "sides": tuple((lock_path(lock.id), lock.id, describe_subject(lock)) for lock in (first, second)),
        "differences": question_differences(first, second),
        "offer": offer_interleaving(registry, queue, (first, second)),
        "reverse": lock_diff_path(second.id, first.id),
        "same": _list_same(first, second),
        "lines": compare_lines(first, second),
    }
    facts = {"before": first.id, "after": second.id, "reasons": context["differences"], "changes": changes}
    return Page(
        "lock_diff",
        "Differences between two locks",
        context,
        {"changes": Table("changes", "Changes", _CHANGES, rows)},
        with_query("/v1/locks/diff", before=first.id, after=second.id),
        ((lock_path(first.id), f"Lock {first.id[:19]}…"),),
        facts=facts,
    )


def _list_same(before: Lock, after: Lock) -> tuple[str, ...]:
    """Return the artifacts and the parts that are equal in both locks."""
    others = after.artifacts()
    same = [title(kind, one) for kind, one in before.artifacts().items() if others.get(kind) == one]
    parts = ("limits", "scenario", "metrics", "harness")
    return (*same, *(part for part in parts if before.document.get(part) == after.document.get(part)))


@dataclass(frozen=True, slots=True)
class LineDiff:
    """The differences between two lock files line by line.

    Attributes:
        lines: The unified diff, or its first lines.
        hidden: The number of its lines that ``lines`` leaves out; None where the files are too long to compare.
    """

    lines: tuple[str, ...]
    hidden: int | None = 0


def compare_lines(before: Lock, after: Lock) -> LineDiff:
    """Compare two lock files line by line."""
    was, is_ = (dump(lock).split("\n") for lock in (before, after))
    if max(len(was), len(is_)) > _COMPARED_LINES:
        return LineDiff((), None)
    names = [f"{lock.id[:19]}….lock" for lock in (before, after)]
    lines = tuple(unified_diff(was, is_, names[0], names[1], lineterm=""))
    shown = tuple(shorten(line, _SHOWN_CHARACTERS) for line in lines[:_SHOWN_LINES])
    return LineDiff(shown, len(lines) - len(shown))


def _name_change(before: str | None, after: str | None) -> str:
    if before is None and after is not None:
        return "added"
    return "removed" if before is not None and after is None else "changed"


def _list_facts(lock: Lock) -> Iterator[tuple[str, str]]:
    """Yield what the lock measures, without its artifacts, which are a table."""
    question = describe_question(lock)
    yield "request", str(lock.request.get("name", ""))
    if lock.dataset is not UNSET:
        yield "split", f"{lock.dataset.split} of {lock.dataset.name} {lock.dataset.version}"
    yield from ((name, question[name]) for name in ("scenario", "limits"))
    yield "metrics", ", ".join(f"{name} (definition {version})" for name, version in lock.metrics.items())
    yield "trace", str(lock.request.get("trace", "none"))
    yield "harness", f"{lock.harness.version}, {lock.harness.digest}"
    yield "schema", lock.schema


def _explain(registry: LocalRegistry, lock: Lock) -> Iterator[tuple[str, str | None, tuple[str, ...]]]:
    """Yield each locked version, why it is yanked, and who asked for what and why it is no newer version."""
    for kind, artifact in lock.artifacts().items():
        name = title(kind, artifact)
        try:
            found = explain_locked_version(lock, kind, artifact.name, registry.catalogue)
        except BenchlockError as error:
            yield name, None, (f"the reasons are unknown: {error.what}",)
            continue
        newer = [rejection.text for rejection in found.newer] or ["no newer version is published"]
        yield name, found.yanked, (*(requirement.text for requirement in found.requirements), *newer)


def _tabulate_artifacts(lock: Lock) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for kind, artifact in lock.artifacts().items():
        files = list_image_files(lock) if kind == "image" else artifact.files
        rows.append((title(kind, artifact), artifact.digest, len(files), sum(file.size for file in files)))
    return Table("artifacts", "Locked artifacts", _ARTIFACTS, tuple(rows))


def list_image_files(lock: Lock) -> tuple[LockedFile, ...]:
    """Return the files of an image, once for all its platforms: the locks of their wheels, and the wheels."""
    files = {file.path: file for file in lock.image.files}
    for one in lock.image.platforms:
        locks = () if one.wheels_lock is UNSET else (one.wheels_lock,)
        files |= {file.path: file for file in (*locks, *one.wheels)}
    return tuple(files.values())


def _tabulate_platforms(lock: Lock) -> Table:
    rows = tuple(
        (str(one), one.python, _describe_environment(one), one.image_id or None, *_measure_layers(one))
        for one in lock.image.platforms
    )
    return Table("platforms", "Platforms", _PLATFORMS, rows)


def _measure_layers(platform: LockedPlatform) -> tuple[int, int]:
    """Return the number of layers of a platform and their bytes."""
    layers = platform.layers or ()
    return len(layers), sum(layer.size for layer in layers)


def _describe_environment(platform: LockedPlatform) -> str:
    return platform.reference if isinstance(platform.reference, str) else f"{len(platform.wheels)} wheels"
