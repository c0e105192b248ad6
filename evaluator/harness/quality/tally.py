"""The interface of tallies, and the choice of the tally for a job."""

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from ..core.job import Job
from ..datasets import Label
from ..predictors import Tensors
from ..steps.tensor import Geometry
from .classification import ClassificationTally
from .detection import DetectionTally, demand
from .regression import RegressionTally
from .segmentation import SegmentationTally


class Tally(Protocol):
    """Counts predictions, which are added in the order of the samples."""

    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label, geometry: Geometry | None) -> None:
        """Add one sample.

        Args:
            prediction: The stored tensors of the sample by output name, and ``detections`` of a detector.
            label: What the dataset says of the sample.
            geometry: How the model's first picture came from its original; None where that is not known.

        Raises:
            Failure: ``predict``: the prediction cannot be compared with the label.
        """
        ...

    def document(self) -> dict[str, Any]:
        """What ``result.json`` says under ``quality``: by metric ``n``, and ``correct`` or ``value``."""
        ...

    def measures(self) -> Tensors:
        """What each sample adds to a metric that is no count: intervals are made of it."""
        ...


__all__ = ["Tally", "open_tally"]

_CLASSIFYING = ("top1", "top5")


def open_tally(job: Job, *, ranks_nan: bool = False) -> Tally:
    """Make the tally of the quality metrics that the job asks for, of which there is at least one.

    Args:
        job: Says which metrics, and which outputs the model has.
        ranks_nan: Whether NaN is a score like others, below all numbers, as harnesses before 1.3.0 took it.

    Raises:
        Failure: ``load``: the environment lacks the library that computes a metric.
    """
    metrics, model = job.quality_metrics, job.model
    if model.detections is not None:
        demand(metrics[0])
        return DetectionTally(model.detections.label_offset, metrics)
    if metrics[0] in _CLASSIFYING:
        output = next(output for output in model.outputs if output.type in ("class-scores", "class-index"))
        return ClassificationTally(output, metrics, several_calls=model.takes_several_calls, ranks_nan=ranks_nan)
    if metrics[0] == "miou":
        mask = next(output for output in model.outputs if output.type == "mask")
        return SegmentationTally(mask, model.first_picture, job.dataset.ignore_label)
    return RegressionTally(next(output for output in model.outputs if output.type == "value"), metrics)
