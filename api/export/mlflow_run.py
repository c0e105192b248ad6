"""An exported run as a run of MLflow, through MLflow's own client."""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from benchlock.api.export.exported_run import ExportedRun
from benchlock.artifacts.errors import UnavailableError

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT: Final = "benchlock"
"""The default experiment."""
_RUN_TAG: Final = "benchlock.run"
_MAX_TAG: Final = 5000
"""The characters of a tag that every version of MLflow accepts."""


class MlflowRun(Struct, frozen=True):
    """A run of MLflow: its ids, the address of the tracking server, and whether it was created now."""

    run_id: str
    experiment_id: str
    tracking_uri: str
    created: bool


def log_to_mlflow(exported: ExportedRun, experiment: str = EXPERIMENT) -> MlflowRun:
    """Log the run to the tracking server of MLflow's own settings (``MLFLOW_TRACKING_URI``), unless it is there.

    Args:
        exported: The run.
        experiment: The name of the experiment; it is created if there is none.

    Raises:
        UnavailableError: MLflow is not installed, or its tracking server failed.
    """
    try:
        import mlflow  # noqa: PLC0415 - an optional library
    except ImportError as error:
        raise UnavailableError(
            f"MLflow is not installed: {error}",
            where="mlflow",
            next_step="install `mlflow` or `mlflow-skinny` beside benchlock, or export another format",
        ) from error
    uri = mlflow.get_tracking_uri()
    try:
        return _log(exported, mlflow.MlflowClient(tracking_uri=uri), experiment, uri)
    except mlflow.MlflowException as error:
        raise UnavailableError(
            f"MLflow failed: {error}", where=uri, next_step="check MLFLOW_TRACKING_URI and the experiment"
        ) from error


def _log(exported: ExportedRun, client: "MlflowClient", name: str, uri: str) -> MlflowRun:
    known = client.get_experiment_by_name(name)
    experiment = client.create_experiment(name) if known is None else known.experiment_id
    query = f"tags.`{_RUN_TAG}` = '{exported.run}' and attributes.status = 'FINISHED'"
    earlier = client.search_runs([experiment], query, max_results=1)
    if earlier:
        return MlflowRun(earlier[0].info.run_id, experiment, uri, created=False)
    started, ended = (int(at.timestamp() * 1000) for at in (exported.started_at, exported.ended_at))
    run_name = f"{exported.subject.name} {exported.subject.version}"
    run = client.create_run(experiment, start_time=started, tags=_tags(exported), run_name=run_name)
    for metric in exported.metrics:
        # Names of metrics in MLflow may not contain "@".
        key = metric.metric.replace("@", "/batch-")
        for suffix, value in (("", metric.value), (".low", metric.low), (".high", metric.high)):
            if value is not None:
                client.log_metric(run.info.run_id, f"{key}{suffix}", value, timestamp=ended)
    client.set_terminated(run.info.run_id, status="FINISHED", end_time=ended)
    return MlflowRun(run.info.run_id, experiment, uri, created=True)


def _tags(exported: ExportedRun) -> dict[str, str]:
    """Return what identifies the bytes that produced the metrics, and the notes on metrics."""
    tags = {
        _RUN_TAG: exported.run,
        "benchlock.lock": exported.lock,
        "benchlock.split": exported.split,
        "benchlock.scenario": exported.scenario,
        "benchlock.harness": exported.harness.digest,
        "benchlock.isolation": exported.isolation,
        "benchlock.platform": exported.platform,
        "benchlock.cpu_model": exported.cpu_model,
    }
    for kind, artifact in exported.artifacts.items():
        tags[f"benchlock.{kind}"] = f"{artifact.name}@{artifact.version}"
        tags[f"benchlock.{kind}.digest"] = artifact.digest
    for metric in exported.metrics:
        if metric.notes:
            tags[f"benchlock.notes.{metric.metric.replace('@', '/batch-')}"] = "; ".join(metric.notes)
    return {name: text[:_MAX_TAG] for name, text in tags.items()}
