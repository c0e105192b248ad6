"""Routes for runs: list, read, hide, compare and verify against an earlier run."""

from typing import Annotated, Any, Literal

import msgspec
from litestar import Controller, Request, get, post
from litestar.di import Provide
from litestar.params import Body, Parameter
from msgspec import UNSET

from benchlock.api.http.openapi import describe_body, describe_empty_body, describe_responses, encode_example
from benchlock.api.http.request_authorization import ADMIN, READ
from benchlock.api.http.request_limits import COMPARE, LIST, WHILE_FULL
from benchlock.api.http.request_parsing import (
    Cursor,
    Injected,
    Limit,
    Prefix,
    bound_page_size,
    complete_prefix,
    fit_page,
)
from benchlock.api.http.responses import BytesResponse, respond_with_etag
from benchlock.api.http.service_state import Service
from benchlock.api.local.local_registry import LocalRegistry, now
from benchlock.api.schemas import run_schemas as wire
from benchlock.api.schemas.pagination_cursors import decode_cursor, encode_cursor
from benchlock.artifacts.digest import digest_bytes, parse_digest
from benchlock.artifacts.size_limits import PAGE, TARGET
from benchlock.evaluator.records.comparison_types import ComparisonReport, Verdict
from benchlock.evaluator.records.evidence_status import SCRATCH
from benchlock.evaluator.records.run_document import check_fit, check_recorded
from benchlock.evaluator.records.run_types import (
    DamagedRun,
    Run,
    RunFilter,
    RunId,
    RunStart,
    check_start,
    fit_run,
    parse_run_id,
    parse_selectors,
    parse_since,
)

AT_ONCE = 101
"""Number of runs that are read together."""
_PAIRING_SECONDS = 60.0
"""Maximum seconds of the sample-by-sample comparison in one request."""
_ID = "run/01kam1v3mz4w0q3d5g7h9j2k4m"
_LOCK = "sha256:" + "0" * 64
_METRIC = {
    "name": "latency_p50",
    "value": 0.0021,
    "unit": "s",
    "direction": "lower",
    "n": 662,
    "ci": [0.002, 0.0022],
    "version": 1,
    "batch": None,
}
RUN_START_EXAMPLE: Any = {
    "id": _ID,
    "lock": _LOCK,
    "attempt": 1,
    "isolation": "process",
    "platform": {"os": "linux", "arch": "amd64", "device": "cpu", "python": "3.11"},
    "host": {"cpu_model": "A CPU", "cores": 2},
    "process": {"pid": 1},
    "started_at": "2026-11-21T12:00:00Z",
    "image_id": None,
}
RUN_END_EXAMPLE: Any = {
    "outcome": "done",
    "ended_at": "2026-11-21T12:01:00Z",
    "failure_class": None,
    "failure_message": None,
    "metrics": [_METRIC],
    "packages": {"onnxruntime": "1.31.1"},
    "blobs": {"predictions": {"digest": _LOCK, "size": 1}},
    "timings": {"load": 0.2},
    "details": {},
}
RUN_EXAMPLE: Any = {"start": RUN_START_EXAMPLE, "end": RUN_END_EXAMPLE, "imported_at": None, "position": 42}
_PAGE: Any = {"runs": [RUN_EXAMPLE], "damaged": []}
_VERDICT = {
    "verdict": "reproduced",
    "reasons": ["all predictions are bit-equal"],
    "reported": [],
    "original": _ID,
    "run": _ID,
    "predictions": "bit-equal",
}
_HIDDEN = {"target": _ID, "hidden": True, "changed": True}
_COMPARISON = {
    "comparable": True,
    "reasons": [],
    "interleaved": False,
    "arms": [
        {
            "lock": _LOCK,
            "control": False,
            "runs": [_ID],
            "model": {"name": "acme/resnet8", "version": "1.0.0"},
            "framework": {"name": "onnxruntime", "version": "1.31.1"},
        }
    ],
    "findings": [],
}

RunIn = Annotated[
    str,
    Parameter(
        description="The id of the run, with or without `run/`.",
        max_length=30,
        examples=[encode_example(_ID), encode_example(_ID.removeprefix("run/"))],
        schema_extra={"pattern": "^(run/)?[0-9a-hjkmnp-tv-z]{26}$"},
    ),
]
LockOf = Annotated[
    str | None,
    Parameter(
        description="Only of the lock with this id.", required=False, max_length=71, examples=[encode_example(_LOCK)]
    ),
]
OutcomeIs = Annotated[
    Literal["done", "failed", "abandoned", "cancelled"] | None,
    Parameter(description="Only with this outcome.", required=False),
]
RunsIn = Annotated[wire.ComparisonRequest, Body(examples=[encode_example({"runs": [_ID, _ID]})])]
HideIn = Annotated[
    wire.HideRequest, Body(examples=[encode_example({"target": _ID, "reason": "ran on a throttled host"})])
]
VerdictIn = Annotated[wire.VerdictRequest, Body(examples=[encode_example({"run": _ID, "against": _ID})])]


def _describe_selector(kind: str, example: str) -> Any:  # noqa: ANN401 - as Parameter returns it
    description = f"Only of this {kind}: NAME, and after `@` a version or a constraint."
    return Parameter(description=description, required=False, max_length=TARGET, examples=[encode_example(example)])


ModelIs = Annotated[str | None, _describe_selector("model", "acme/resnet8@^1.0")]
OperatorIs = Annotated[str | None, _describe_selector("operator", "gemm")]
RecipeIs = Annotated[str | None, _describe_selector("recipe", "digits-cnn")]
DatasetIs = Annotated[str | None, _describe_selector("dataset", "cifar10")]
SinceTime = Annotated[
    str | None,
    Parameter(
        description="Only runs since this date (UTC) or time, or within a period such as `7d`, `12h` or `30m`.",
        required=False,
        max_length=40,
        examples=[encode_example("2026-11-01")],
    ),
]


FlaggedIs = Annotated[
    bool | None,
    Parameter(description="Only runs whose times are flagged, or only others, without damaged runs.", required=False),
]


def parse_run_filter(  # noqa: PLR0913 - the parameters of a request
    *,
    lock: LockOf = None,
    outcome: OutcomeIs = None,
    model: ModelIs = None,
    operator: OperatorIs = None,
    recipe: RecipeIs = None,
    dataset: DatasetIs = None,
    since: SinceTime = None,
    prefix: Prefix = None,
    flagged: FlaggedIs = None,
) -> RunFilter:
    """Return the filter in the parameters of a request.

    Args:
        lock: The id of a lock.
        outcome: The outcome.
        model: The selector of the model.
        operator: The selector of the operator.
        recipe: The selector of the recipe.
        dataset: The selector of the dataset.
        since: The earliest time.
        prefix: The first characters of the id.
        flagged: Whether the times are flagged.

    Raises:
        InvalidInputError: One of them is malformed.
    """
    return RunFilter(
        lock=None if lock is None else parse_digest(lock),
        outcome=outcome,
        **parse_selectors(model=model, operator=operator, recipe=recipe, dataset=dataset),
        since=None if since is None else parse_since(since, now()),
        prefix=None if prefix is None else complete_prefix("run/", prefix),
        flagged=flagged,
    )


class RunController(Controller):
    """Routes ``/v1/runs``, ``/v1/hidings``, ``/v1/comparisons`` and ``/v1/verdicts``."""

    tags = ("runs",)

    @get(
        "/runs",
        opt=READ | LIST,
        dependencies={"chosen": Provide(parse_run_filter, sync_to_thread=False)},
        summary="List runs",
        responses=describe_responses(
            "invalid-input",
            success={200: describe_body(wire.RunPage, "A page of runs.", {"runs": [RUN_EXAMPLE], "damaged": []})},
        ),
    )
    async def list_runs(
        self,
        service: Injected[Service],
        chosen: Injected[RunFilter],
        cursor: Cursor = None,
        limit: Limit = None,
    ) -> wire.RunPage:
        """List runs without details, newest first, including active ones. `GET /v1/runs/{run_id}` has all details.

        A page with `flagged` may have fewer runs than `limit`, even none, and yet `next`: it reads 1,000 runs at most.
        """
        page_size = min(bound_page_size(limit, service.settings), service.settings.largest_run_page)
        before = None if cursor is None else parse_run_id(decode_cursor(cursor, 1)[0])
        return await service.lists.do(_page, service.registry, chosen, before, page_size)

    @get(
        "/runs/count",
        opt=READ,
        summary="Count the runs of a lock",
        responses=describe_responses(
            "invalid-input", success={200: describe_body(wire.RunCount, "The number of runs.", {"count": 3})}
        ),
    )
    async def count_runs(
        self,
        service: Injected[Service],
        lock: Annotated[str, Parameter(description="The lock's id.", max_length=71)],
    ) -> wire.RunCount:
        """Count the runs of a lock, whatever their outcome, including active ones."""
        return wire.RunCount(count=await service.work.do(service.registry.records.count, parse_digest(lock)))

    @get(
        "/runs/{run_id:str}",
        opt=READ,
        summary="Read a run",
        responses=describe_responses(
            "unknown-name",
            "invalid-input",
            success={
                200: describe_body(Run, "The complete record of the run.", RUN_EXAMPLE),
                304: describe_empty_body("Unchanged since the ETag in If-None-Match."),
            },
        ),
    )
    async def read_run(
        self, service: Injected[Service], run_id: RunIn, request: Request[Any, Any, Any]
    ) -> BytesResponse:
        """Read a run; its predictions, samples and other files are blobs under their digests."""
        id_ = parse_run_id(f"run/{run_id}")
        run = await service.work.do(service.registry.records.recall, id_)
        if run is None:  # its metrics have to be recomputed
            run = await service.compare.do(service.registry.records.get, id_)
        text = msgspec.json.encode(fit_run(run))
        return respond_with_etag(text, digest_bytes(text), request.headers.get("if-none-match"))

    @post(
        "/hidings",
        opt=ADMIN | WHILE_FULL,
        status_code=200,
        summary="Hide or unhide a run",
        responses=describe_responses(
            "unknown-name", body=True, success={200: describe_body(wire.HideResult, "The state of the run.", _HIDDEN)}
        ),
    )
    async def hide_run(self, service: Injected[Service], data: HideIn) -> wire.HideResult:
        """Hide a run from lists, comparisons and verdicts, and from everybody but administrators.

        Its record and its blobs stay as they are.
        """
        return await service.work.do(_hide_run, service.registry, data)

    @post(
        "/comparisons",
        opt=READ | COMPARE,
        status_code=200,
        summary="Compare runs",
        responses=describe_responses(
            "unknown-name",
            body=True,
            success={200: describe_body(ComparisonReport, "The comparison.", _COMPARISON)},
        ),
    )
    async def compare_runs(self, service: Injected[Service], data: RunsIn) -> ComparisonReport:
        """Compare each further lock with the first, metric by metric; `reasons` are why runs are not comparable.

        Quality is compared sample by sample (`test`), from the stored predictions and the labels.
        """
        return await service.compare.do(_compare_runs, service.registry, data)

    @post(
        "/verdicts",
        opt=READ | COMPARE,
        status_code=200,
        summary="Verify that a run is reproduced",
        responses=describe_responses(
            "unknown-name",
            "integrity",
            body=True,
            success={200: describe_body(Verdict, "The verdict.", _VERDICT)},
        ),
    )
    async def judge_run(self, service: Injected[Service], data: VerdictIn) -> Verdict:
        """Compare a run with an earlier run of the same lock, including the predictions."""
        return await service.compare.do(_judge_run, service.registry, data)


def check_run_start(registry: LocalRegistry, start: RunStart) -> None:
    """Raise unless the start of a run is complete and matches its lock."""
    check_start(start)
    check_fit(Run(start, None), registry.read_lock(start.lock))


def check_run_end(registry: LocalRegistry, run: Run) -> None:
    """Raise unless an ended run matches its lock and agrees with its evidence."""
    lock = registry.read_lock(run.start.lock)
    check_recorded(run, lock)
    registry.examiner.require(run, lock)


def _page(registry: LocalRegistry, chosen: RunFilter, before: RunId | None, limit: int) -> wire.RunPage:
    entries: list[Run | DamagedRun] = []
    size = 0
    last: RunId | None = None
    while len(entries) <= limit and size <= PAGE:  # in batches, so that little beyond the page is read
        batch, last = registry.records.list_some(chosen=chosen, before=before, limit=min(AT_ONCE, limit + 1))
        entries += (fit_run(entry) if isinstance(entry, Run) else entry for entry in batch)
        if len(batch) < min(AT_ONCE, limit + 1):
            break
        size = len(msgspec.json.encode(entries))
        before = batch[-1].id
    page, more = fit_page(entries, limit, lambda entry: encode_cursor((entry.id,)))
    if more is UNSET and last is not None:
        more = encode_cursor((last,))
    runs = tuple(item for item in page if isinstance(item, Run))
    damaged = tuple(item for item in page if isinstance(item, DamagedRun))
    return wire.RunPage(runs=runs, damaged=damaged, next=more)


def _compare_runs(registry: LocalRegistry, data: wire.ComparisonRequest) -> ComparisonReport:
    from benchlock.evaluator.evidence.prediction_scores import PAIRS, PredictionPairs  # noqa: PLC0415 - as below
    from benchlock.evaluator.workflows.compare import compare_recorded_runs, compare_speeds  # noqa: PLC0415 - imports numpy

    pairs = PredictionPairs(registry.store, registry.home / SCRATCH, _PAIRING_SECONDS, registry.home / PAIRS)
    comparison = compare_recorded_runs(registry.records, registry.read_lock, data.runs, pairs.compare_all)
    return compare_speeds(comparison, registry.store).report()


def _judge_run(registry: LocalRegistry, data: wire.VerdictRequest) -> Verdict:
    from benchlock.evaluator.workflows.rerun import judge_recorded_run  # noqa: PLC0415 - imports numpy

    against = None if data.against is UNSET else data.against
    return judge_recorded_run(registry.records, registry.store, registry.read_lock, data.run, against)


def _hide_run(registry: LocalRegistry, data: wire.HideRequest) -> wire.HideResult:
    records, run = registry.records, parse_run_id(data.target)
    changed = records.unhide(run) if data.undo else records.hide(run, data.reason)
    return wire.HideResult(target=run, hidden=not data.undo, changed=changed)
