"""Whether predictions are right: top1 and top5, counted sample by sample."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .datasets import Label, Samples
from .failures import Failure
from .job import Job, Output
from .pipeline import Prepared
from .predictors import Tensors
from .steps.outputs import ranking

_RANKS = {"top1": 1, "top5": 5}


class Tally(Protocol):
    """What is counted and kept of predictions, added in the order of the samples."""

    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label | None, sample: Prepared) -> None:
        """``sample`` is what the prediction was made of. ``Failure`` (``predict``) if it cannot be judged."""
        ...

    def document(self) -> dict[str, Any]:
        """What ``result.json`` says under ``quality``."""
        ...

    def tensors(self) -> Tensors:
        """Predictions that several outputs make together, to be stored beside those of each."""
        ...


def open_tally(job: Job, samples: Samples) -> Tally:
    """The tally that the job asks for, which may ask for nothing.

    Raises:
        Failure: ``load``: a quality metric is asked, and the split has no labels.
    """
    if not job.quality_metrics:
        return _Nothing()
    if samples.labels is None:
        raise Failure("load", "dataset: the split has no labels, and a quality metric is asked")
    return Classes(job)


class _Nothing:
    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label | None, sample: Prepared) -> None:
        pass

    def document(self) -> dict[str, Any]:
        return {}

    def tensors(self) -> Tensors:
        return {}


class Classes(_Nothing):
    """Counts of right samples by metric, of the first output that holds classes."""

    def __init__(self, job: Job) -> None:
        self._output = next(output for output in job.model.outputs if output.type.startswith("class-"))
        self._correct = dict.fromkeys(job.quality_metrics, 0)
        self._n = 0

    def add(self, prediction: Mapping[str, NDArray[Any]], label: Label | None, sample: Prepared) -> None:  # noqa: ARG002
        """Raises ``Failure`` (``predict``) if the prediction holds no classes, or fewer than a metric looks at."""
        output = self._output
        for metric in self._correct:
            classes = decisions(output, prediction[output.name], _RANKS[metric])
            self._correct[metric] += bool(np.any(classes - output.label_offset == label))
        self._n += 1

    def document(self) -> dict[str, Any]:
        return {metric: {"correct": correct, "n": self._n} for metric, correct in self._correct.items()}


def decisions(output: Output, values: NDArray[Any], ranks: int) -> NDArray[np.int64]:
    """The ``ranks`` classes that a sample's values put first, the best first; all of them where there are fewer.

    Raises:
        Failure: ``predict``: the values are no list of scores, or name fewer than ``ranks`` classes.
    """
    flat = values.reshape(-1)
    if values.size != max(values.shape, default=1):
        raise Failure("predict", f"output {output.name}: {list(values.shape)} are no classes of one sample")
    if output.type == "class-index":
        if flat.size < ranks:
            raise Failure("predict", f"output {output.name}: {flat.size} classes a sample, top{ranks} needs {ranks}")
        return flat[:ranks].astype(np.int64)
    if flat.size == 1:
        if output.threshold is None:
            raise Failure("predict", f"output {output.name}: one score a sample needs a threshold")
        first = int(flat[0] >= output.threshold)
        return np.asarray([first, 1 - first][:ranks], np.int64)
    return ranking(flat, ranks)
