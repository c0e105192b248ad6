"""Whether predictions are right: each metric counted sample by sample, with what its interval is made of."""

from ..datasets import Samples
from ..failures import Failure
from ..job import Job
from .boxes import Detected, demand, first_picture
from .classes import Classes
from .masks import Masks
from .tally import Nothing, Tally
from .values import Values

__all__ = ["Tally", "open_tally"]

_CLASSIFYING = ("top1", "top5")


def open_tally(job: Job, samples: Samples) -> Tally:
    """The tally that the job asks for, which may ask for nothing.

    Raises:
        Failure: ``load``: a quality metric is asked, and the split has no labels, or the environment lacks the library
            that computes it.
    """
    metrics, outputs = job.quality_metrics, job.model.outputs
    if metrics and samples.labels is None:
        raise Failure("load", "dataset: the split has no labels, and a quality metric is asked")
    if job.model.detections is not None:
        if metrics:
            demand(metrics[0])
        return Detected(job.model, metrics)
    if not metrics:
        return Nothing()
    if metrics[0] in _CLASSIFYING:
        return Classes(next(output for output in outputs if output.type in ("class-scores", "class-index")), metrics)
    if metrics[0] == "miou":
        mask = next(output for output in outputs if output.type == "mask")
        return Masks(mask, first_picture(job.model), job.dataset.ignore_label)
    return Values(next(output for output in outputs if output.type == "value"), metrics)
