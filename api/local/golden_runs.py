"""Trial runs that make or check the golden tensors of an unpublished model."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, structs

from benchlock.api.local.container_registry_access import look_up_image, look_up_leniently
from benchlock.api.local.local_registry import source_access
from benchlock.api.local.run_setup import build_runner
from benchlock.api.schemas.registry_protocol import Registry
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.harness_archive import HARNESS_VERSION, build_harness
from benchlock.evaluator.runner.host_platform import this_host
from benchlock.evaluator.workflows.golden_decisions import NAME, SPLIT, sample_dataset
from benchlock.registry.artifact_names import Reference
from benchlock.registry.lock.lock_creation import Harness, build_trial_lock, make_draft_candidate
from benchlock.registry.manifests import Dataset, Manifest, Model
from benchlock.registry.publishing.drafts import read_draft
from benchlock.registry.publishing.publication import store_draft
from benchlock.registry.requests.evaluation_request import parse_request

if TYPE_CHECKING:
    from benchlock.evaluator.records.run_types import Isolation
    from benchlock.evaluator.runner.run_stages import GoldenTask, Trial
    from benchlock.registry.publishing.drafts import Draft


@dataclass(frozen=True, slots=True)
class GoldenRequest:
    """The model and samples of a trial run, and where it runs.

    Attributes:
        draft: The draft of the model.
        files: Files to use as samples, unless ``dataset`` is given.
        dataset: A published dataset to take samples from.
        split: The split of ``dataset``.
        image: The framework image, as ``NAME[@CONSTRAINT]``; empty for any.
        device: The device of the request.
        memory: The memory limit of the request.
        time: The time limit of the request.
        isolation: How the run is isolated; None for the default.
        allow_code: Whether code of the model may run.
        labelled: Whether the split has labels, so that the predictions can be scored.
    """

    draft: "Draft"
    files: tuple[Path, ...] = ()
    dataset: Reference | None = None
    split: str = ""
    image: str = ""
    device: str = "cpu"
    memory: str = "4GiB"
    time: str = "10m"
    isolation: "Isolation | None" = None
    allow_code: bool = False
    labelled: bool = False


def require_model(draft: "Draft") -> Model:
    """Return the draft's manifest.

    Raises:
        InvalidInputError: It is not the manifest of a model.
    """
    if not isinstance(draft.manifest, Model):
        raise InvalidInputError(
            f"{draft.path} is the manifest of a {draft.manifest.kind}; only models have golden tensors",
            where=str(draft.path),
            next_step="choose the manifest of a model",
        )
    return draft.manifest


def golden_source(draft: "Draft") -> str | None:
    """Return the source of the model's golden file, None if the manifest lists none."""
    files = require_model(draft).files
    return next((str(file.source) for file in files if file.role == "golden" and file.source is not UNSET), None)


def remove_golden(draft: "Draft") -> "Draft":
    """Return the draft without its golden file, which is about to be made."""
    model = require_model(draft)
    return replace(
        draft, manifest=structs.replace(model, files=tuple(file for file in model.files if file.role != "golden"))
    )


def try_golden(
    registry: Registry,
    golden: GoldenRequest,
    making: "GoldenTask | None",
    progress: Progress,
    say: Callable[[str], None],
) -> "Trial":
    """Make or check golden tensors in the environment that a lock would choose, without storing a run.

    Args:
        registry: The registry that resolves the request.
        golden: The model, its samples and its host.
        making: The golden tensors to make; None to check those that the model has.
        progress: Shows transfers and stages.
        say: Prints a message.
    """
    store = registry.trial_store

    def warn(message: str) -> None:
        say(f"warning: {message}")

    with store.writing(), _drafts(golden) as drafts:
        manifests = [
            store_draft(replace(entry, ask=partial(look_up_leniently, store, say)), store, progress=progress, warn=warn)
            for entry in drafts
        ]
        request = parse_request(_request(golden, manifests[0]), "the trial")
        harness = Harness(HARNESS_VERSION, build_harness())
        resolution = registry.resolve(request, {}, [make_draft_candidate(entry) for entry in manifests])
        lock = build_trial_lock(
            request, resolution, manifests, harness, (store, registry.catalogue, partial(look_up_image, store))
        )
        runner = replace(build_runner(registry, progress, say), store=store)
        return runner.trial(lock, making, isolation=golden.isolation, allow_code=golden.allow_code)


@contextmanager
def _drafts(golden: GoldenRequest) -> Iterator[Sequence["Draft"]]:
    """Yield the model and, unless a published dataset is named, a temporary dataset of the files."""
    if golden.dataset is not None:
        yield (golden.draft,)
        return
    with tempfile.TemporaryDirectory(prefix="benchlock-") as folder:
        text, path = sample_dataset(require_model(golden.draft), golden.files, Path(folder))
        yield golden.draft, read_draft(text, "the samples", path, source_access())


def _request(golden: GoldenRequest, model: Manifest) -> dict[str, Any]:
    """Build the request for the model on this host, as if the model were published."""
    host = this_host()
    name, version, split = NAME, "1.0.0", SPLIT
    if golden.dataset is not None:
        name, version, split = golden.dataset.name, str(golden.dataset.version), golden.split
    document: dict[str, Any] = {
        "schema": 1,
        "kind": "evaluation",
        "name": "golden",
        "model": {"name": model.name, "version": f"={model.version}"},
        "dataset": {"name": name, "version": f"={version}", "split": split},
        "hardware": {"os": host.os, "arch": host.arch, "device": golden.device},
        "limits": {"time": golden.time, "memory": golden.memory, "cpus": 1, "processes": 256},
        "scenario": {"name": "accuracy"},
        "metrics": ["top1"] if golden.labelled else [],
        "seed": 0,
    }
    if golden.image:
        image, _, constraint = golden.image.partition("@")
        document["image"] = {"name": image.removeprefix("image/"), "version": constraint or "*"}
    return document


def find_split(registry: Registry, reference: Reference, split: str) -> tuple[Dataset, str]:
    """Return the published dataset and the name of its split; without ``split``, its only one.

    Raises:
        InvalidInputError: It has no split of that name, or several and ``split`` is empty.
    """
    dataset = registry.catalogue.manifest(reference)
    assert isinstance(dataset, Dataset)
    if split in dataset.splits or (not split and len(dataset.splits) == 1):
        return dataset, split or next(iter(dataset.splits))
    raise InvalidInputError(
        f"{reference} has no split {split!r}" if split else f"{reference} has several splits",
        where="--split",
        next_step=f"choose one of {', '.join(sorted(dataset.splits))}",
    )
