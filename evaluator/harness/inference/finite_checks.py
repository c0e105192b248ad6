"""Counts of NaN and infinite values in outputs.

Every comparison with NaN is false, so a decision made from NaN is an accident of the implementation. An output may have
such values only where the manifest states ``allow_non_finite: true``; a sample with NaN then counts as wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from ..core.failures import Failure, classify_errors
from ..core.job import Model, Output
from .predictions import PREDICTIONS, split_samples


@dataclass(slots=True)
class _Count:
    """Counts of one output.

    ``seen`` is the number of counted samples, and ``samples`` of them have values that are not finite. ``first`` and
    ``last`` are the numbers of the first and last such sample; ``latest`` is the number of the last counted sample.
    """

    values: int = 0
    nan: int = 0
    infinite: int = 0
    seen: int = 0
    samples: int = 0
    first: int = -1
    last: int = -1
    latest: int = -1


class FiniteCheck:
    """A check that counts the values of outputs that are not finite, sample by sample."""

    def __init__(self, model: Model, names: Sequence[str] | None = None, *, when: str = "") -> None:
        """Start at zero.

        Args:
            model: Defines the outputs, and which of them may have values that are not finite.
            names: The names of the samples in messages; None for samples without names.
            when: The moment of the check, for messages.
        """
        self._ports = tuple(port for port in model.prediction_outputs if not port.allow_non_finite)
        self._names = names
        self._when = when
        self._counts = {port.name: _Count() for port in self._ports}

    def add_call(self, tensors: Mapping[str, NDArray[Any]], first: int, count: int) -> None:
        """Count the answer to one call.

        Args:
            tensors: The tensors that the model returned, by output name.
            first: The number of the first sample of the call.
            count: The number of its samples.
        """
        for port in self._ports:
            values = tensors.get(port.name)
            if isinstance(values, np.ndarray | np.generic):
                for number, row in enumerate(_rows(port, np.asarray(values), count), first):
                    self._add(port.name, number, row)

    def add_prediction(self, prediction: Mapping[str, NDArray[Any]], number: int) -> None:
        """Count the outputs of one sample after their steps."""
        for port in self._ports:
            if port.name in prediction:
                self._add(port.name, number, prediction[port.name])

    def add_stored(self, path: Path) -> None:
        """Count the stored predictions of all samples.

        Raises:
            Failure: ``predict``: the file is malformed.
        """
        with classify_errors("predict", PREDICTIONS), safe_open(path, framework="numpy") as file:
            for name in sorted(self._counts.keys() & set(file.keys())):
                for number, values in enumerate(split_samples(file, name)):
                    self._add(name, number, values)

    def check(self) -> None:
        """Raise unless all values so far are finite.

        Raises:
            Failure: ``non-finite``, with the counts and the first sample of each output that has such values.
        """
        faults = [
            f"output {name}{self._when}: {self._describe(count)}"
            for name, count in self._counts.items()
            if count.samples
        ]
        if faults:
            raise Failure("non-finite", f"{'; '.join(faults)}; if this is intended, set allow_non_finite: true there")

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Check at the end of the context, also after another failure that NaN or infinite values may have caused.

        Raises:
            Failure: As ``check``.
        """
        try:
            yield
        except Failure as error:
            if error.kind in ("step", "predict"):
                self.check()
            raise
        self.check()

    def _add(self, name: str, number: int, values: NDArray[Any]) -> None:
        count = self._counts[name]
        count.values += values.size
        count.seen += number != count.latest
        count.latest = number
        if values.dtype.kind not in "fc" or np.isfinite(values).all():
            return
        count.nan += int(np.count_nonzero(np.isnan(values)))
        count.infinite += int(np.count_nonzero(np.isinf(values)))
        count.samples += number != count.last
        count.first, count.last = number if count.first < 0 else count.first, number

    def _describe(self, count: _Count) -> str:
        name = "" if self._names is None else f" ({self._names[count.first]})"
        return (
            f"{count.nan + count.infinite} of {count.values} values are not finite "
            f"({count.nan} NaN, {count.infinite} infinite), "
            f"in {count.samples} of {count.seen} samples, first in sample {count.first}{name}"
        )


def _rows(port: Output, values: NDArray[Any], count: int) -> Sequence[NDArray[Any]]:
    """Return the values of each sample of a call; a malformed answer counts as one sample."""
    axis = port.axes.axis
    if axis is None or values.ndim <= axis:
        return [values]
    return list(np.moveaxis(values, axis, 0)[:count])
