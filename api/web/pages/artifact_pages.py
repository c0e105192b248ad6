"""The page of an artifact: its manifest for readers, its card, its claims beside measured values, its versions."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import msgspec
from markupsafe import Markup
from msgspec import UNSET

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.cards import render_card
from benchlock.api.web.links import artifact_path, find_downloads, used_by_path, with_query
from benchlock.api.web.page import Page
from benchlock.api.web.pages.catalogue_pages import find_description, list_version_remarks
from benchlock.api.web.pages.yank_pages import tabulate_locks, tabulate_promoted
from benchlock.api.web.request_choices import UNNAMED_DATASET, suggest_request
from benchlock.api.web.run_lists import RUN_COLUMNS, find_lock, list_run_rows
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.artifacts.size_limits import shorten
from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.records.run_texts import format_interval, format_metric
from benchlock.evaluator.records.run_types import SELECTED_KINDS, Run, filter_version
from benchlock.evaluator.statistics.metric_types import format_value
from benchlock.evaluator.workflows.claim_verdicts import RULE, claims_of
from benchlock.evaluator.workflows.promotion import find_origin
from benchlock.registry.artifact_names import Kind, Reference, parse_target
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import Entry
from benchlock.registry.lock.lockfile import title
from benchlock.registry.manifests.manifest_types import Model, Operator, Recipe
from benchlock.registry.manifests.metric_definitions import DEFINITIONS
from benchlock.registry.manifests.model_card import read_card
from benchlock.registry.scaffold.request_scaffold import format_request
from benchlock.registry.versions.semantic_version import parse_version
from benchlock.registry.versions.version_ranges import Constraint

VERSIONS: Final = 50
FILES: Final = 50
"""The number of files on the page; the CSV and the JSON have all."""
MANIFEST: Final = 16 << 10
"""The maximum size of a manifest on the page, in bytes of JSON without spaces."""
PORTS: Final = 20
"""The maximum number of inputs on the page, and of outputs."""
STEPS: Final = 50
"""The maximum number of steps of an input or output on the page."""
FACTS: Final = 60
"""The maximum number of facts on the page."""
_TEXT: Final = 500
"""The maximum number of characters of a fact, a shape or a step on the page."""
RUNS: Final = 10
"""The maximum number of runs, of locks and of promoted models on the page."""
_PARTS: Final = ("steps", "name", "type", "dtype", "shape")
_FACTS: Final = ("task", "license", "format", "family", "predictor", "samples")
_FILES: Final = (
    Column("path", None, "The path inside the artifact."),
    Column("role", None, "What the file is for."),
    Column("size", "B", "Bytes."),
    Column("sha256", None, "The digest of its bytes."),
)
_VERSIONS: Final = (
    Column("artifact", None, "The version."),
    Column("published", None, "When, UTC."),
    Column("manifest", None, "The digest of the manifest."),
    Column("remarks", None, "Whether it is yanked, with the reason, or a pre-release."),
)
_SOURCES: Final[tuple[Kind, ...]] = ("recipe", "dataset")
_TRAINED: Final = (
    Column("run", None, "A verified run whose repeat has these weights, if this registry has one."),
    Column("repeat", None, "The number of the repeat, from 0."),
    Column("seed", None, "Its seed."),
    Column("weights", None, "The digest of the weights as the harness wrote them."),
)
_CLAIMS: Final = (
    Column("metric", None, "The metric."),
    Column("dataset", None, "The dataset and the split."),
    Column("stated", None, "What the author states."),
    Column("measured", None, "What the run measured, with its 95 % interval."),
    Column("verdict", None, "Whether the claim holds."),
    Column("reason", None, "Why."),
    Column("run", None, "The run that decides."),
)
_PLURAL: Final = {"holds": "hold", "does not hold": "do not hold"}


def find_artifact(catalogue: Catalogue, target: str) -> Entry:
    """Return the version of KIND/NAME@VERSION, or the newest that is admitted, as ``show`` does."""
    kind, name, version = parse_target(target)
    if version is None:
        return catalogue.newest(kind, name, None)
    try:
        return catalogue.get(Reference(kind, name, parse_version(version)))
    except InvalidInputError:  # a constraint
        return catalogue.newest(kind, name, Constraint.parse(version))


def make_artifact(registry: LocalRegistry, target: str, below: str, versions: str = "") -> Page:
    """Make the page of an artifact.

    Args:
        registry: The registry.
        target: KIND/NAME, and after ``@`` a version or a constraint.
        below: The list of versions starts below this one; empty for the newest.
        versions: The list has the versions in this range; empty for all. With a wrong one, the page says what is wrong,
            and the list has all versions.
    """
    catalogue = registry.catalogue
    entry = find_artifact(catalogue, target)
    reference, document = entry.reference, catalogue.manifest_document(entry.reference)
    kind, name = reference.kind, reference.name
    newest = catalogue.newest(kind, name, None)
    within, problem = _parse_range(versions)
    others = catalogue.newest_versions(kind, name, parse_version(below) if below else None, VERSIONS + 1, within)
    path = artifact_path(kind, name, str(reference.version))
    tables = {"files": _tabulate_files(document), "versions": _tabulate_versions(others[:VERSIONS])}
    files = tables["files"].rows[:FILES]
    text = msgspec.json.encode(document)
    yanks = () if entry.yanked is None else catalogue.list_yank_changes(reference, 1)
    may_publish = get_actor().may_publish(name)
    context: dict[str, Any] = {
        "entry": entry,
        "yank": yanks[0]._replace(actor=yanks[0].actor if may_publish else None) if yanks else None,
        "used_by": used_by_path(str(reference)),
        "kind": kind,
        "version": str(reference.version),
        "target": str(reference),
        "newest": "" if list_version_remarks(newest) else str(newest.reference.version),
        "newest_path": artifact_path(kind, name, str(newest.reference.version)),
        "description": find_description(document),
        "tags": document.get("tags", ()),
        **_bound("facts", list(_list_facts(document)), FACTS),
        "may_publish": may_publish,
        "evaluate": with_query("/new", model=f"{name}@={reference.version}"),
        **_bound("inputs", document.get("inputs", ()) if kind == "model" else (), PORTS, _list_ports),
        **_bound("outputs", document.get("outputs", ()), PORTS, _list_ports),
        "shown": {"files": replace(tables["files"], rows=files)},
        "file_count": len(tables["files"].rows),
        "downloads": find_downloads(
            registry.store,
            [str(row[-1]) for row in files],
            _name_downloads(f"{name}-{reference.version}", files),
        ),
        "manifest": msgspec.json.format(text, indent=2).decode() if len(text) <= MANIFEST else "",
        "yanked_rows": tuple("yanked" if other.yanked is not None else "" for other in others[:VERSIONS]),
        "range": versions,
        "range_problem": problem,
        "path": path,
        "next": with_query(path, versions=versions, below=str(others[VERSIONS - 1].reference.version))
        if others[VERSIONS:]
        else None,
        **_read_card(registry, entry),
    }
    manifest = catalogue.manifest(reference)
    if isinstance(manifest, Operator | Recipe):
        with suppress(BenchlockError):  # settings out of the bounds of requests, or a damaged dataset
            request = suggest_request(registry, manifest)
            context["request"], context["lockfile"] = format_request(request.document), f"{request.name}.lock"
            context["has_dataset"] = request.document.get("dataset", {}).get("name") != UNNAMED_DATASET
    tables["locks"] = tabulate_locks(registry, catalogue.list_locks_with(reference, RUNS).locks)
    tables |= tabulate_promoted(registry, reference, RUNS)
    if kind in SELECTED_KINDS:
        found = registry.records.list_entries(chosen=filter_version(reference), limit=RUNS + 1)
        runs = found[:RUNS]
        tables["runs"] = Table("runs", "Newest runs", RUN_COLUMNS, list_run_rows(registry, runs))
        context["all_runs"] = with_query("/runs", **{kind: f"{name}@={reference.version}"})
        if kind == "model":
            recorded = [run for run in runs if isinstance(run, Run)]
            rows = tuple(_judge_claims(registry, entry, recorded))
            tables["claims"] = Table("claims", "Claims", _CLAIMS, rows, notes=(RULE,))
            context["claims_summary"] = _summarize_claims(rows)
            tables |= _tabulate_training(registry, entry)
        context["runs_summary"] = f"more than {RUNS} runs" if len(found) > RUNS else format_count(len(found), "run")
    title = f"{name} {reference.version}"
    breadcrumbs = (("/artifacts", "Artifacts"), (with_query("/artifacts", kind=kind), kind))
    return Page("artifact", title, context, tables, f"/v1/artifacts{path}", breadcrumbs)


def _parse_range(text: str) -> tuple[Constraint | None, BenchlockError | None]:
    """Return the range of a list of versions, or what is wrong with it; neither for an empty text."""
    try:
        return Constraint.parse(text) if text.strip() else None, None
    except InvalidInputError as error:
        return None, error


def _bound(
    name: str,
    values: Any,  # noqa: ANN401 - a list of a manifest
    most: int,
    show: Callable[[Sequence[Any]], Iterable[Any]] = tuple,
) -> dict[str, Any]:
    """Return the first values of a list as they are shown, and how many more there are, for the context of a page."""
    return {name: tuple(show(values[:most])), f"more_{name}": max(0, len(values) - most)}


def _name_downloads(prefix: str, files: Sequence[Sequence[object]]) -> dict[str, str]:
    """Return the names of the downloads of files by digest; files of equal content are named by their digest."""
    digests = Counter(str(row[-1]) for row in files)
    return {str(row[-1]): f"{prefix}-{row[0]}".replace("/", "-") for row in files if digests[str(row[-1])] == 1}


def _list_facts(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the facts of a manifest that its readers look for first."""
    yield from ((name, str(document[name])) for name in _FACTS if name in document)
    if isinstance(framework := document.get("framework"), Mapping):
        yield "framework", f"{framework.get('name')} {framework.get('version')}"
    if isinstance(provides := document.get("provides"), Mapping):
        yield "provides", f"{provides.get('framework')} {provides.get('version')}"
    if isinstance(op := document.get("op"), Mapping):
        yield "operator", f"{op.get('type')}, opset {op.get('opset')}, {document.get('dtype')}"
        yield "cases", shorten(", ".join(str(case["name"]) for case in document["cases"]), _TEXT)
    for name, split in (document.get("splits") or {}).items():
        yield f"split {name}", f"{split.get('samples'):,} samples"
    for name, value in (document.get("attributes") or {}).items():
        yield str(name), shorten(value if isinstance(value, str) else msgspec.json.encode(value).decode(), _TEXT)


def _list_ports(ports: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - plain values of a manifest
    """Yield inputs or outputs with their steps in words, the steps in their order."""
    for port in ports:
        shape = " x ".join("batch" if size is None else str(size) for size in port.get("shape", ()))
        steps = port.get("steps", ())
        shown = {name: port.get(name, "") for name in _PARTS} | {"shape": shorten(shape, _TEXT)}
        yield shown | _bound("steps", steps, STEPS, _list_steps)


def _list_steps(steps: Sequence[Any]) -> Iterator[str]:
    """Yield steps in words."""
    yield from (shorten(" ".join(_list_words(step)), _TEXT) for step in steps)


def _list_words(value: Any) -> Iterator[str]:  # noqa: ANN401 - as above
    """Yield the names and values of a step in their order."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield str(name)
            yield from _list_words(part)
    else:
        yield value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _read_card(registry: LocalRegistry, entry: Entry) -> dict[str, str | Markup]:
    """Return the card, or why it cannot be read."""
    try:
        card = read_card(registry.catalogue.manifest(entry.reference), registry.store)
    except BenchlockError as error:
        return {"card": "", "card_problem": error.what}
    return {"card": "" if card is None else render_card(card.text), "card_problem": ""}


def _tabulate_files(document: Mapping[str, Any]) -> Table:
    rows = tuple(
        (file.get("path"), file.get("role"), file.get("size"), file.get("sha256")) for file in document.get("files", ())
    )
    return Table("files", "Files", _FILES, rows)


def _tabulate_versions(entries: tuple[Entry, ...]) -> Table:
    rows = tuple(
        (
            str(entry.reference),
            f"{entry.published_at:%Y-%m-%d %H:%M}",
            entry.digest,
            "; ".join(list_version_remarks(entry)),
        )
        for entry in entries
    )
    return Table("versions", "Versions, newest first", _VERSIONS, rows)


def _tabulate_training(registry: LocalRegistry, entry: Entry) -> dict[str, Table]:
    """Return the training that made a promoted model, as its manifest states it; nothing for other models.

    The lock and its recipe are links if this registry has the lock.
    """
    manifest = registry.catalogue.manifest(entry.reference)
    assert isinstance(manifest, Model)
    if manifest.trained is UNSET:
        return {}
    origin = manifest.trained
    lock = find_lock(registry, Digest(origin.lock))
    parts = {} if lock is None else lock.artifacts()
    recipe, dataset = (title(kind, parts[kind]) if kind in parts else None for kind in _SOURCES)
    columns = (
        Column("artifact", None, "The recipe; unknown where this registry does not have the lock."),
        Column("trained on", None, "The dataset; unknown likewise."),
        Column("lock" if lock else "lock elsewhere", None, "The lock of the training."),
        *_TRAINED,
    )
    row = (
        recipe,
        dataset,
        origin.lock,
        find_origin(registry.records, origin),
        origin.repeat,
        origin.seed,
        origin.weights,
    )
    return {"trained": Table("trained", "The training that made the weights", columns, (row,))}


def _judge_claims(registry: LocalRegistry, entry: Entry, runs: list[Run]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each claim of a model: the verdict by the newest of its runs that can decide it."""
    manifest = registry.catalogue.manifest(entry.reference)
    assert isinstance(manifest, Model)
    judged = []
    locks = registry.find_locks(run.start.lock for run in runs)
    for run in runs:
        lock = locks[run.start.lock]
        if lock is not None and run.end is not None and run.evidence is not None and run.evidence.state == "verified":
            judged += [(run, verdict) for verdict in claims_of(lock, run, registry.store)]
    for claim in manifest.claims or ():
        unit = DEFINITIONS[claim.metric].unit if claim.metric in DEFINITIONS else ""
        stated = f"{format_value(claim.value, unit)} ± {format_value(claim.tolerance, unit)}"
        dataset = f"{claim.dataset.name} {claim.dataset.version} ({claim.dataset.split})"
        mine = [(run, verdict) for run, verdict in judged if verdict.claim == claim and verdict.measured is not None]
        if not mine:
            yield claim.metric, dataset, stated, None, *_unmeasured(len(runs)), None
            continue
        run, verdict = next((pair for pair in mine if pair[1].answer != "can't be said yet"), mine[0])
        assert verdict.measured is not None
        measured = f"{format_metric(verdict.measured)} {format_interval(verdict.measured)}"
        yield claim.metric, dataset, stated, measured, verdict.answer, verdict.reason, run.id


def _unmeasured(runs: int) -> tuple[str, str]:
    """Return the verdict on a claim that none of the shown runs measured, and its reason."""
    where = f"by the newest {RUNS} runs" if runs == RUNS else "here"
    return f"not measured {where}", "evaluate the model on this dataset with this metric"


def _summarize_claims(rows: Sequence[tuple[Cell, ...]]) -> str:
    """Return the number of claims, and how many of them have each verdict."""
    counts = Counter(str(row[-3]) for row in rows)
    verdicts = ", ".join(f"{count} {_PLURAL.get(word, word) if count > 1 else word}" for word, count in counts.items())
    return f"{format_count(len(rows), 'claim')}{': ' * bool(rows)}{verdicts}"
