"""The interface of tallies, and the choice of the tally for a job."""

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from ..core.job import CLASS_METRICS, Job
from ..datasets import Label
from ..predictors import Tensors
from ..steps.step_tensor import Geometry
from .class_scores import ClassTally
from .detection import DetectionTally, require_metric_library
from .regression import RegressionTally
from .segmentation import SegmentationTally


class Tally(Protocol):
    """A counter of predictions, which are added in the order of the samples."""

    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label, geometry: Geometry | None) -> None:
        """Add one sample.

        Args:
            prediction: The stored tensors of the sample by output name, and ``detections`` of a detector.
            label: The label of the sample.
            geometry: How the model's first image was made from its original; None where that is unknown.

        Raises:
            Failure: ``predict``: the prediction cannot be compared with the label.
        """
        ...

    def document(self) -> dict[str, Any]:
        """Return the content of ``result.json`` under ``quality``: by metric ``n``, and ``correct`` or ``value``."""
        ...

    def measures(self) -> Tensors:
        """Return the contribution of each sample to metrics that are not counts, for confidence intervals."""
        ...


__all__ = ["Tally", "open_tally"]

_CLASSIFYING = ("top1", "top5", *CLASS_METRICS)


def open_tally(job: Job, *, ranks_nan: bool = False) -> Tally:
    """Return the tally of the job's quality metrics; there must be at least one.

    Args:
        job: Has the metrics and the outputs of the model.
        ranks_nan: Whether NaN is a score below all numbers, as in harnesses before 1.3.0.

    Raises:
        Failure: ``load``: the environment lacks the library that computes a metric, or the output cannot give it.
    """
    metrics, model = job.quality_metrics, job.model
    if model.detections is not None:
        require_metric_library(metrics[0])
        return DetectionTally(model.detections.label_offset, metrics)
    if metrics[0] in _CLASSIFYING:
        output = next(output for output in model.outputs if output.type in ("class-scores", "class-index"))
        return ClassTally(output, metrics, several_calls=model.takes_several_calls, ranks_nan=ranks_nan)
    if metrics[0] == "miou":
        mask = next(output for output in model.outputs if output.type == "mask")
        return SegmentationTally(mask, model.first_image, job.dataset.ignore_label)
    return RegressionTally(next(output for output in model.outputs if output.type == "value"), metrics)
