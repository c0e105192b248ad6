"""Whether predictions are right: each metric counted sample by sample, with what its interval is made of."""

from ..job import Job
from .boxes import Detected, demand
from .classes import Classes
from .masks import Masks
from .tally import Tally
from .values import Values

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
        return Detected(model.detections.label_offset, metrics)
    if metrics[0] in _CLASSIFYING:
        output = next(output for output in model.outputs if output.type in ("class-scores", "class-index"))
        return Classes(output, metrics, several_calls=model.takes_several_calls, ranks_nan=ranks_nan)
    if metrics[0] == "miou":
        mask = next(output for output in model.outputs if output.type == "mask")
        return Masks(mask, model.first_picture, job.dataset.ignore_label)
    return Values(next(output for output in model.outputs if output.type == "value"), metrics)
