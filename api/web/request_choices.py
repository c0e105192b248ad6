"""The choices of the form of a new evaluation: which are possible, and the checks' own words why others are not."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final, cast, get_args

from msgspec import UNSET

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.choices import Choice, list_isolations
from benchlock.api.web.links import with_query
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.evaluator.queue.job_matching import JobRequirements, MachineFacts, RequiredPlatform
from benchlock.evaluator.runner.host_platform import is_confined
from benchlock.registry.artifact_names import Kind, Reference, parse_name
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import ContentFilter
from benchlock.registry.catalogue.version_lists import VersionFilter
from benchlock.registry.lock.lock_assembly import question_of
from benchlock.registry.lock.lock_creation import check_choices
from benchlock.registry.lock.lock_feasibility import OPERATED
from benchlock.registry.lock.split_checks import check_labelled, check_model_inputs
from benchlock.registry.manifests import Dataset, Framework, Image, Manifest, Model, Operator, Recipe
from benchlock.registry.manifests.manifest_types import Platform, Task
from benchlock.registry.manifests.metric_definitions import DEFINITIONS, GROUPS, check_metrics, expand, is_quality
from benchlock.registry.requests.evaluation_request import Request, parse_request
from benchlock.registry.requests.metric_meanings import describe_metric
from benchlock.registry.requests.request_form import (
    SCENARIOS,
    RequestFields,
    check_framework,
    split_list,
    split_target,
    write_document,
)
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.resolution.resolver import explain
from benchlock.registry.resolution.resolver_types import Question, Resolution, Snapshot
from benchlock.registry.resolution.version_search import CachedSnapshot, Search
from benchlock.registry.scaffold.request_scaffold import (
    suggest_metrics,
    suggest_operator_request,
    suggest_training_request,
)

OFFERED: Final = 12
"""The number of names of a kind: each is judged, which takes a millisecond or two."""
_SPLITS: Final = 20
TRACES: Final = ("none", "model", "framework", "system", "full")
_UNNAMED: Final = "unnamed"
UNNAMED_DATASET: Final = "name-of-a-dataset"
"""The dataset of a request for a recipe on which no published one can be trained."""
_PLATFORM: Final = ("os", "arch", "device")


def find_newest(catalogue: Catalogue, kind: Kind, text: str) -> Manifest | None:
    """Return the manifest of the newest version of a name; None for an unknown name."""
    if not text:
        return None
    with suppress(InvalidInputError):
        entry = catalogue.newest(kind, parse_name(split_target(text)[0]), None)
        return catalogue.manifest(entry.reference)
    return None


def write_form(fields: RequestFields, model: Model | None, dataset: Dataset | None) -> dict[str, Any]:
    """Return the request of a form, with the only split and the usual metrics of its model and dataset."""
    splits = {} if dataset is None else dict(dataset.splits)
    only = next(iter(splits)) if len(splits) == 1 else ""
    return write_document(fields, only, suggest_metrics(model, splits.get(fields.split or only), fields.scenario_name))


class RequestChoices:
    """The choices of a form, judged by the checks of requests, of the resolver and of locks.

    Args:
        registry: The registry.
        snapshot: Its catalogue, as of the time in the form.
        fields: The form.
        machines: The facts of the machines that may run it, by name.
    """

    def __init__(
        self,
        registry: LocalRegistry,
        snapshot: Snapshot,
        fields: RequestFields,
        machines: Mapping[str, MachineFacts],
    ) -> None:
        """Read the newest versions of the model and the dataset in the form."""
        self._registry, self.fields, self._snapshot = registry, fields, CachedSnapshot(snapshot)
        self._machines = machines
        self._search: Search | None = None
        self.manifest, self._problems = cache(registry.catalogue.manifest), cache(self._find_problems)
        self.model = cast("Model | None", find_newest(registry.catalogue, "model", fields.model))
        self.dataset = cast("Dataset | None", find_newest(registry.catalogue, "dataset", fields.dataset))

    def with_fields(self, fields: RequestFields) -> "RequestChoices":
        """Return the choices of another form."""
        return RequestChoices(self._registry, self._snapshot, fields, self._machines)

    def list_all(self) -> dict[str, list[Choice]]:
        """Return the choices by field."""
        splits = () if self.dataset is None else tuple(self.dataset.splits)[:_SPLITS]
        return {
            "task": self._mark("task", get_args(Task), self._explain_task),
            "model": self._list_names("model", self._explain_model),
            "framework": self._list_names("framework", self._explain_framework),
            "dataset": self._list_names("dataset", self._explain_dataset),
            "image": self._list_names("image", self._explain_image),
            "split": self._mark("split", splits, partial(self._explain_split, splits or ("",))),
            **{key: self._mark(key, values, self._try(key)) for key, values in self._list_platforms().items()},
            "scenario": self._mark("scenario", SCENARIOS, self._try("scenario")),
            "trace": self._mark("trace", TRACES, self._try("trace")),
            "metrics": self._list_metrics(),
            "isolation": list_isolations(self._machines, self._find_wants(), self.fields.isolation),
        }

    def _mark(self, field: str, values: Iterable[str], explain_value: Callable[[str], str]) -> list[Choice]:
        """Judge the values of a field and the one in the form."""
        chosen = getattr(self.fields, field)
        listed = [*values, *([chosen] if chosen else [])]
        return [Choice(value, explain_value(value), value == chosen) for value in dict.fromkeys(listed)]

    def _list_names(self, kind: Kind, explain_name: Callable[[str], str]) -> list[Choice]:
        """Judge the offered names of a kind, those for the framework of the model first."""
        chosen, names = split_target(getattr(self.fields, kind))[0], self._offer(kind)
        if self.model is not None and kind == "framework":
            names = [self.model.framework.name, *names]
        if self.model is not None and kind == "image":
            names = [*self._snapshot.images(self.model.framework.name)[:OFFERED], *names]
        forms = ((name, replace(self.fields, **{kind: name})) for name in dict.fromkeys(names[: 2 * OFFERED]))
        return [
            Choice(name, explain_name(name), name == chosen, with_query("/new", **form.as_parameters()))
            for name, form in forms
        ]

    def _offer(self, kind: Kind) -> list[str]:
        """Return names of a kind that contain the text of its field, or are beside it; the first ones without a text.

        Models are those of the chosen task and framework, images those that provide the framework.
        """
        text, snapshot = split_target(getattr(self.fields, kind))[0], self._snapshot
        if text in snapshot.names(kind, text, 1):
            text = ""
        beside = snapshot.names(kind, text, OFFERED)
        found = [name for name in beside if text.lower() in name.lower()] or ([] if text else list(beside))
        content = ContentFilter(search=text or None)
        if kind == "model":
            task = cast("Task", self.fields.task) if self.fields.task in get_args(Task) else None
            content = replace(content, task=task)
        if kind in ("model", "image"):
            with suppress(InvalidInputError):
                name = split_target(self.fields.framework)[0]
                content = replace(content, framework=parse_name(name) if name else None)
        is_narrowed = content.task is not None or content.framework is not None
        if is_narrowed or (text and not found):
            page = self._registry.catalogue.search(VersionFilter(kind=kind, content=content), OFFERED)
            found = list(dict.fromkeys(version.name for version in page.versions))
        return found[:OFFERED]

    def _list_metrics(self) -> list[Choice]:
        """Judge each metric beside the others of the request, which its reasons may depend on.

        Without a choice of the user, the usual ones are chosen.
        """
        requested = list(write_form(self.fields, self.model, self.dataset)["metrics"])
        names = [*GROUPS, *(name for name, definition in DEFINITIONS.items() if not definition.automatic), *requested]
        choices = []
        for name in dict.fromkeys(names):
            others = [other for other in requested if other != name]
            reason = self._explain(("metrics", ", ".join(others)), ("metrics", ", ".join([*others, name])))
            reason = reason or self._explain_metric(name)
            choices.append(Choice(name, reason, name in requested, hint=describe_metric(name)))
        return choices

    def _explain_metric(self, name: str) -> str:
        """Return why the task of the model does not give a metric; it is known before there is a split."""
        try:
            check_metrics(None if self.model is None else self.model.task, None, [name])
        except InvalidInputError as error:
            return error.what
        return ""

    def _list_platforms(self) -> dict[str, list[str]]:
        """Return the parts of the platforms that images provide for the offered frameworks."""
        frameworks = [*self._offer("framework"), *([self.model.framework.name] if self.model is not None else [])]
        platforms = {platform for name in dict.fromkeys(frameworks) for platform in self._snapshot.platforms(name)}
        return {key: sorted({platform[place] for platform in platforms}) for place, key in enumerate(_PLATFORM)}

    def _try(self, field: str) -> Callable[[str], str]:
        """Return the judge of an optional field: what is wrong with a value that is not wrong without it."""
        return lambda value: self._explain((field, ""), (field, value))

    def _explain_split(self, splits: Iterable[str], split: str) -> str:
        """Return what is wrong with a split and not with all of them; a request without a split cannot be judged."""
        common = set.intersection(*(set(self._problems(replace(self.fields, split=name))) for name in splits))
        problems = self._problems(replace(self.fields, split=split))
        return next((write() for key, write in problems.items() if key not in common), "")

    def _explain(self, without: tuple[str, str], with_: tuple[str, str]) -> str:
        known, problems = (self._problems(replace(self.fields, **dict([change]))) for change in (without, with_))
        return next((write() for key, write in problems.items() if key not in known), "")

    def _find_problems(self, fields: RequestFields) -> Mapping[object, Callable[[], str]]:
        """Return what is wrong with a form; all conflicts have one key, as any choice changes their words.

        The words of a conflict cost more than to find that there is one, so they are written only where shown.
        What the form does not name yet has a name in its place, so that the rest of the request is judged.
        """
        form = replace(fields, model=fields.model or _UNNAMED, dataset=fields.dataset or _UNNAMED)
        try:
            request = self._parse(form)
            if self.model is None or self.dataset is None:
                return {}
            search, resolution = self._resolve(question_of(request))
            if resolution is None:
                return {ConflictError: lambda: ConflictError(explain(search)).what.partition("\n")[0]}
            check_framework(fields, str(resolution.model), resolution.framework.name)
            check_choices(request, resolution, self._registry.store, self)
        except (InvalidInputError, IntegrityError) as error:
            return {problem.what: partial(str, problem.what) for problem in error.problems or (error,)}
        return {}

    def _parse(self, fields: RequestFields) -> Request:
        """Return the request of a form, with a name in place of a split that it does not name."""
        document = write_form(fields, self.model, self.dataset)
        document["dataset"]["split"] = document["dataset"]["split"] or _UNNAMED
        return parse_request(document, "request")

    def _find_wants(self) -> JobRequirements | None:
        """Return what a run of the form needs from a machine; None as long as that is not known."""
        if self.model is None or self.dataset is None:
            return None
        try:
            request = self._parse(self.fields)
        except InvalidInputError:
            return None
        _, resolution = self._resolve(question_of(request))
        if resolution is None:
            return None
        image = resolution.image
        manifest = cast("Image", self.manifest(Reference("image", parse_name(image.name), image.version)))
        platforms = (one for one in manifest.platforms if request.hardware.admits((*_spell(one), one.python, False)))
        return JobRequirements(
            tuple(
                RequiredPlatform(*_spell(one), one.layers is not UNSET, one.reference is not UNSET) for one in platforms
            ),
            request.document.get("hardware", {}),
            request.limits.cpus,
            confined=is_confined(self.model, allow_code=False),
        )

    def _resolve(self, question: Question) -> tuple[Search, Resolution | None]:
        """Search for the answer to a question; without the search for fixes, which costs more than all else."""
        search = self._search
        search = Search.of(question, self._snapshot, {}) if search is None else search.with_question(question)
        self._search = search
        return search, search.find()

    def _explain_task(self, task: str) -> str:
        if self.model is None or self.model.task == task:
            return ""
        return f"model/{self.model.name} is for {self.model.task}"

    def _explain_model(self, name: str) -> str:
        model = cast("Model | None", find_newest(self._registry.catalogue, "model", name))
        if model is None:
            return ""
        return self._explain_need(self.fields, model) or self._explain_pair(model, self.dataset)

    def _explain_framework(self, name: str) -> str:
        needed = "" if self.model is None else self._explain_need(replace(self.fields, framework=name), self.model)
        return needed or self._explain_images(name)

    def _explain_need(self, fields: RequestFields, model: Model) -> str:
        """Return why the framework that a model requires is not possible with a form."""
        try:
            check_framework(fields, f"model/{model.name}", model.framework.name)
        except InvalidInputError as error:
            return error.what
        return self._explain_images(model.framework.name)

    def _explain_images(self, framework: str) -> str:
        return "" if self._snapshot.images(framework) else f"no published image provides framework/{framework}"

    def _explain_image(self, name: str) -> str:
        """Return why an image is not possible; only a resolution can tell, as its name is a published one."""
        return "" if self.model is None or self.dataset is None else self._explain(("image", ""), ("image", name))

    def _explain_dataset(self, name: str) -> str:
        if self.model is None:
            return ""
        dataset = cast("Dataset | None", find_newest(self._registry.catalogue, "dataset", name))
        return self._explain_pair(self.model, dataset)

    def _explain_pair(self, model: Model | None, dataset: Dataset | None) -> str:
        """Return why no split of a dataset suits a model and the metrics; empty if one does."""
        if model is None or dataset is None:
            return ""
        reasons = [""]
        for name, split in dataset.splits.items():
            metrics = split_list(self.fields.metrics) or suggest_metrics(model, split, self.fields.scenario_name)
            try:
                check_model_inputs(model, dataset, split)
                check_labelled([metric for metric in expand(metrics) if is_quality(metric)], dataset, name)
            except InvalidInputError as error:
                reasons.append(error.what)
            else:
                return ""
        return next(filter(None, reasons), "")


def choose_only(choices: RequestChoices) -> tuple[RequestChoices, dict[str, list[Choice]]]:
    """Choose the only possible dataset, and its only possible split, where the form has none.

    Returns:
        The choices of that form, and their values by field.
    """
    listed = choices.list_all()
    for field in ("dataset", "split"):
        possible = [choice.value for choice in listed[field] if not choice.reason]
        if not getattr(choices.fields, field) and len(possible) == 1 and len(listed[field]) < OFFERED:
            return choose_only(choices.with_fields(replace(choices.fields, **{field: possible[0]})))
    return choices, listed


def suggest_request(registry: LocalRegistry, subject: Operator | Recipe) -> Request:
    """Return a request for an operator or a recipe, with a framework or a dataset of the registry that suits it."""
    if isinstance(subject, Operator):
        document = suggest_operator_request(subject, _find_framework(registry))
    else:
        document = suggest_training_request(subject, *_find_training_data(registry, subject))
    return parse_request(document, "request")


def _list_newest(registry: LocalRegistry, kind: Kind) -> Iterator[Manifest]:
    """Yield the newest versions of the first names of a kind."""
    for _, name in registry.catalogue.names(VersionFilter(kind=kind), OFFERED):
        yield registry.catalogue.manifest(registry.catalogue.newest(kind, name, None).reference)


def _find_framework(registry: LocalRegistry) -> str:
    """Return the first framework in which operators run; the name of one without any."""
    frameworks = cast("Iterator[Framework]", _list_newest(registry, "framework"))
    return next((one.name for one in frameworks if one.predictor in OPERATED), OPERATED[0])


def _find_training_data(registry: LocalRegistry, recipe: Recipe) -> tuple[str, str, str]:
    """Return the first dataset with splits on which a recipe trains and is tested; a name to replace without one."""
    for dataset in cast("Iterator[Dataset]", _list_newest(registry, "dataset")):
        splits = list[str]()
        for name, split in dataset.splits.items():
            with suppress(InvalidInputError):
                check_model_inputs(recipe, dataset, split)
                check_labelled(["top1"], dataset, name)
                splits.append(name)
        if len(splits) > 1:
            train = "train" if "train" in splits else next(name for name in splits if name != "test")
            splits.remove(train)
            return dataset.name, train, "test" if "test" in splits else splits[-1]
    return UNNAMED_DATASET, "train", "test"


def _spell(platform: Platform) -> tuple[str, str, str]:
    return platform.os, platform.arch, platform.device
