"""The page of a new evaluation: a form whose state is its address, and what the registry would lock for it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, cast

from benchlock.api.local.local_registry import LocalRegistry, now
from benchlock.api.web.choices import HOST, list_machines
from benchlock.api.web.links import with_query
from benchlock.api.web.page import Page
from benchlock.api.web.request_choices import RequestChoices, choose_only, find_newest, write_form
from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError
from benchlock.evaluator.analysis.tables import Column, Table
from benchlock.evaluator.queue.queue_types import new_job_id
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_types import parse_isolation
from benchlock.registry.lock.lock_creation import check_resolution, explain_resolution, list_yanked
from benchlock.registry.lock.selection_reasons import SelectionReason
from benchlock.registry.manifests import Dataset, Model
from benchlock.registry.requests.evaluation_request import Request, parse_request, parse_time
from benchlock.registry.requests.request_form import (
    LIMITS,
    SEED,
    SETTINGS,
    RequestFields,
    change_fields,
    check_framework,
    forget_usual,
    list_settings,
    split_list,
    split_target,
)
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.scaffold.request_scaffold import format_request
from benchlock.registry.versions.range_grammar import list_readings

_PLACE: Final = re.compile(r"(?P<field>\w+)(?:\.(?P<key>\w+)|\[(?P<index>\d{1,3})\])?(?: \(request\))?$")
"""The field of a form in the place of an error."""
_NEAR: Final = re.compile(r"did you mean '?(?P<word>[\w./-]+)'?\?")
"""The next step of an error that names the nearest known word."""
_MORE: Final = ("host_", "accelerator", "price_", "equivalence", "prereleases", "as_of", "name")
"""The beginnings of the names of the fields that the form folds away."""
_REASONS: Final = (
    Column("artifact", None, "The chosen version."),
    Column("asked by", None, "The requirements on it."),
    Column("why this one", None, "The newer versions, and why they are not chosen."),
)


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
        request: The request.
        text: The request as a file.
        lockfile: The name of the lockfile that the command writes.
        job: The id of the job of this form, so that a form that is sent twice queues one.
    """

    missing: list[str] = field(default_factory=list)
    problems: Sequence[BenchlockError] = ()
    fixes: list[tuple[str, str]] = field(default_factory=list)
    answer: list[tuple[str, str]] = field(default_factory=list)
    reasons: Sequence[SelectionReason] = ()
    warnings: Sequence[str] = ()
    request: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    lockfile: str = ""
    job: str = ""


def make_new(registry: LocalRegistry, queue: SqlQueue, fields: RequestFields) -> Page:
    """Make the page of a new evaluation.

    Args:
        registry: The registry.
        queue: Its queue, whose machines decide which isolations are possible.
        fields: The form as in the address.
    """
    fields, machines = forget_usual(fields), list_machines(queue)
    with registry.catalogue.snapshot(_parse_as_of(fields)) as snapshot:
        choices, listed = choose_only(RequestChoices(registry, snapshot, fields, machines))
    fields = choices.fields
    preview = _preview(registry, fields, choices.model, choices.dataset)
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
        "choices": listed,
        "usual_metrics": write_form(replace(fields, metrics=""), choices.model, choices.dataset)["metrics"],
        "needs_worker": HOST in machines,
        "has_more": any(name.startswith(_MORE) for name in fields.as_parameters()),
        "defaults": {**LIMITS, **SETTINGS, "seed": SEED},
        "settings": list_settings(fields.scenario_name),
        "other_settings": tuple(name for name in SETTINGS if name not in list_settings(fields.scenario_name)),
    }
    return Page(
        "new",
        "New evaluation",
        context,
        {"resolution": Table("resolution", "Why these versions", _REASONS, rows)} if rows else {},
        with_query("/v1/requests/preview", **fields.as_parameters()),
        facts={name: context[name] for name in ("needs_worker", "choices")}
        | {"fields": context["given"], **_list_facts(preview)},
    )


def _list_facts(preview: Preview) -> dict[str, Any]:
    problems = [{"what": one.what, "where": one.where, "next": one.next_step} for one in preview.problems]
    return {
        "missing": preview.missing,
        "problems": problems,
        "fixes": [{"text": text, "path": path} for text, path in preview.fixes],
        "resolution": dict(preview.answer),
        "warnings": preview.warnings,
        "request": preview.request,
    }


def write_request(registry: LocalRegistry, fields: RequestFields) -> dict[str, Any]:
    """Return the request of a form, as its page shows it."""
    fields = forget_usual(fields)
    model, dataset = (find_newest(registry.catalogue, kind, getattr(fields, kind)) for kind in ("model", "dataset"))
    return write_form(fields, cast("Model | None", model), cast("Dataset | None", dataset))


def _parse_as_of(fields: RequestFields) -> datetime | None:
    """Return the time as of which a form is resolved; None for now, and for a text that is no time."""
    with suppress(InvalidInputError):
        return parse_time(fields.as_of) if fields.as_of else None
    return None


def _preview(registry: LocalRegistry, fields: RequestFields, model: Model | None, dataset: Dataset | None) -> Preview:
    preview = Preview(job=new_job_id(now()))
    document = write_form(fields, model, dataset)
    preview.missing += [kind for kind in ("model", "dataset") if not getattr(fields, kind)]
    if dataset is not None and not document["dataset"]["split"]:
        preview.missing.append("split")
    if preview.missing:
        return preview
    preview.request = document
    preview.text = format_request(document)
    try:
        parse_isolation(fields.isolation)
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
    preview.fixes += [
        (text, with_query("/new", **changed.as_parameters()))
        for problem in preview.problems
        for text, changed in _propose_texts(fields, problem)
    ]
    return preview


def _propose_texts(fields: RequestFields, problem: BenchlockError) -> Iterator[tuple[str, RequestFields]]:
    """Yield the forms that a message about one field proposes: readings of a partial version, or the nearest word."""
    place = _PLACE.match(problem.where or "")
    if place is None or not hasattr(fields, place["field"]):
        return
    name, key = place["field"], place["key"]
    before = getattr(fields, name)
    target, constraint = split_target(before)
    if key == "version":
        for reading, meaning in list_readings(constraint).items():
            yield f"request {name} {target}@{reading}, {meaning}", replace(fields, **{name: f"{target}@{reading}"})
    if (near := _NEAR.fullmatch(problem.next_step or "")) is None:
        return
    if key == "split":
        name, after = key, near["word"]
    elif key == "name" and name != "scenario":
        after = near["word"] + before[len(before.partition("@")[0]) :]
    elif place["index"]:
        words = split_list(before)
        words[int(place["index"])] = near["word"]
        after = ", ".join(words)
    else:
        after = near["word"]
    yield f"set {name} to {after}", replace(fields, **{name: after})


def _resolve(registry: LocalRegistry, fields: RequestFields, request: Request, preview: Preview) -> None:
    """Add the answer to a request. Raise as the resolver, and as the checks of a lock."""
    resolution, preview.reasons = explain_resolution(request, registry.catalogue)
    preview.answer = list(resolution.describe().items())
    preview.warnings = list_yanked(resolution)
    check_framework(fields, str(resolution.model), resolution.framework.name)
    check_resolution(request, resolution, registry.store, registry.catalogue)
