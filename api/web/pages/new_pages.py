"""The page of a new evaluation: a form whose state is its address, and what the registry would lock for it."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast, get_args

from benchlock.api.local.local_registry import LocalRegistry, now
from benchlock.api.web.links import with_query
from benchlock.api.web.page import Page
from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError
from benchlock.evaluator.analysis.tables import Column, Table
from benchlock.evaluator.queue.queue_types import new_job_id
from benchlock.registry.artifact_names import Kind, parse_name
from benchlock.registry.catalogue.catalogue_protocol import ContentFilter
from benchlock.registry.catalogue.version_lists import VersionFilter
from benchlock.registry.lock.lock_creation import check_resolution, explain_resolution, list_yanked
from benchlock.registry.lock.selection_reasons import SelectionReason
from benchlock.registry.manifests import Dataset, Manifest, Model
from benchlock.registry.manifests.manifest_types import Split, Task
from benchlock.registry.manifests.metric_definitions import COST, DEFINITIONS, GROUPS
from benchlock.registry.requests.evaluation_request import Request, parse_request
from benchlock.registry.requests.request_form import (
    LIMITS,
    SCENARIOS,
    SEED,
    SETTINGS,
    RequestFields,
    change_fields,
    check_framework,
    list_settings,
    split_target,
    write_document,
)
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.resolution.resolver_types import ORDER
from benchlock.registry.scaffold.request_scaffold import suggest_metrics
from benchlock.registry.text.yaml import entry_lines

OFFERED: Final = 20
_REASONS: Final = (
    Column("artifact", None, "The chosen version."),
    Column("asked by", None, "The requirements on it."),
    Column("why this one", None, "The newer versions, and why they are not chosen."),
)
_TRACES: Final = ("none", "model", "framework", "system", "full")


@dataclass(slots=True)
class Preview:
    """What the registry would answer to a request.

    Attributes:
        missing: What must be chosen first.
        problems: The errors of the request.
        fixes: The smallest changes that solve a conflict, in words, each with the form that has it.
        answer: The chosen versions and the platforms.
        reasons: Why each version is chosen.
        warnings: What to know about the chosen versions.
        text: The request file.
        lockfile: The name of the lockfile that the command writes.
        job: The id of the job of this form, so that a form that is sent twice queues one.
    """

    missing: list[str] = field(default_factory=list)
    problems: Sequence[BenchlockError] = ()
    fixes: list[tuple[str, str]] = field(default_factory=list)
    answer: list[tuple[str, str]] = field(default_factory=list)
    reasons: Sequence[SelectionReason] = ()
    warnings: Sequence[str] = ()
    text: str = ""
    lockfile: str = ""
    job: str = ""


def make_new(registry: LocalRegistry, fields: RequestFields) -> Page:
    """Make the page of a new evaluation.

    Args:
        registry: The registry.
        fields: The form as in the address.
    """
    model, dataset = _find_newest(registry, "model", fields.model), _find_newest(registry, "dataset", fields.dataset)
    splits = list(dataset.splits) if isinstance(dataset, Dataset) else []
    preview = _preview(registry, fields, cast("Model | None", model), cast("Dataset | None", dataset))
    rows = tuple(
        (
            f"{reason.kind}/{reason.name}@{reason.version}",
            "; ".join(line.text for line in reason.requirements),
            "; ".join(line.text for line in reason.newer) or "no newer version is published",
        )
        for reason in preview.reasons
    )
    context: dict[str, Any] = {
        "fields": fields,
        "given": fields.as_parameters(),
        "preview": preview,
        "tasks": get_args(Task),
        "scenarios": tuple(SCENARIOS),
        "traces": _TRACES,
        "defaults": {**LIMITS, **SETTINGS, "seed": SEED},
        "settings": list_settings(fields.scenario_name),
        "other_settings": tuple(name for name in SETTINGS if name not in list_settings(fields.scenario_name)),
        "offers": {kind: _offer(registry, kind, fields) for kind in ORDER} | {"split": splits[:OFFERED]},
        "metrics": _list_metrics(fields, cast("Model | None", model)),
    }
    return Page(
        "new",
        "New evaluation",
        context,
        {"resolution": Table("resolution", "Why these versions", _REASONS, rows)} if rows else {},
    )


def write_request(registry: LocalRegistry, fields: RequestFields) -> dict[str, Any]:
    """Return the request of a form, as its page shows it."""
    model, dataset = _find_newest(registry, "model", fields.model), _find_newest(registry, "dataset", fields.dataset)
    return _write(fields, cast("Model | None", model), cast("Dataset | None", dataset))


def _write(fields: RequestFields, model: Model | None, dataset: Dataset | None) -> dict[str, Any]:
    splits = {} if dataset is None else dict(dataset.splits)
    only = next(iter(splits)) if len(splits) == 1 else ""
    split: Split | None = splits.get(fields.split or only)
    return write_document(fields, only, suggest_metrics(model, split, fields.scenario_name))


def _preview(registry: LocalRegistry, fields: RequestFields, model: Model | None, dataset: Dataset | None) -> Preview:
    preview = Preview(job=new_job_id(now()))
    document = _write(fields, model, dataset)
    preview.missing += [kind for kind in ("model", "dataset") if not getattr(fields, kind)]
    if dataset is not None and not document["dataset"]["split"]:
        preview.missing.append("split")
    if preview.missing:
        return preview
    preview.text = "\n".join(line for key, value in document.items() for line in entry_lines(key, value))
    try:
        request = parse_request(document, "request")
        preview.lockfile = f"{request.name.replace('/', '-')}.lock"
        _resolve(registry, fields, request, preview)
    except ConflictError as error:
        preview.problems = (error,)
        for fix in error.conflict.get("fixes", ()):
            changed = change_fields(fields, fix["changes"], fix["gives"])
            preview.fixes.append((fix["text"], with_query("/new", **changed.as_parameters())))
    except (InvalidInputError, IntegrityError) as error:
        preview.problems = error.problems or (error,)
    return preview


def _resolve(registry: LocalRegistry, fields: RequestFields, request: Request, preview: Preview) -> None:
    """Add the answer to a request. Raise as the resolver, and as the checks of a lock."""
    resolution, preview.reasons = explain_resolution(request, registry.catalogue)
    preview.answer = list(resolution.describe().items())
    preview.warnings = list_yanked(resolution)
    check_framework(fields, str(resolution.model), resolution.framework.name)
    check_resolution(request, resolution, registry.store, registry.catalogue)


def _find_newest(registry: LocalRegistry, kind: Kind, text: str) -> Manifest | None:
    """Return the manifest of the newest version of a name; None for an unknown name."""
    if not text:
        return None
    with suppress(InvalidInputError):
        entry = registry.catalogue.newest(kind, parse_name(split_target(text)[0]), None)
        return registry.catalogue.manifest(entry.reference)
    return None


def _offer(registry: LocalRegistry, kind: Kind, fields: RequestFields) -> list[str]:
    """Return names of a kind that contain the text of its field, or are beside it; the first ones without a text.

    Models are those of the chosen task and framework, images those that provide the framework.
    """
    text = split_target(getattr(fields, kind))[0]
    with registry.catalogue.snapshot() as snapshot:
        if text in snapshot.names(kind, text, 1):
            text = ""
        beside = snapshot.names(kind, text, OFFERED)
    found = [name for name in beside if text.lower() in name.lower()] or ([] if text else list(beside))
    content = ContentFilter(search=text or None)
    if kind == "model":
        content = replace(content, task=cast("Task", fields.task) if fields.task in get_args(Task) else None)
    if kind in ("model", "image"):
        with suppress(InvalidInputError):
            name = split_target(fields.framework)[0]
            content = replace(content, framework=parse_name(name) if name else None)
    is_narrowed = content.task is not None or content.framework is not None
    if is_narrowed or (text and not found):
        page = registry.catalogue.search(VersionFilter(kind=kind, content=content), OFFERED)
        found = list(dict.fromkeys(version.name for version in page.versions))
    return found[:OFFERED]


def _list_metrics(fields: RequestFields, model: Model | None) -> list[str]:
    """Return the metrics and groups that the scenario and the model, if known, can report; the form has no price."""
    names = {
        name: definition
        for name, definition in DEFINITIONS.items()
        if not definition.automatic
        and name != COST
        and (definition.scenarios is None or fields.scenario_name in definition.scenarios)
        and (definition.tasks is None or model is None or model.task in definition.tasks)
    }
    return [*names, *(group for group, members in GROUPS.items() if set(members) <= names.keys())]
