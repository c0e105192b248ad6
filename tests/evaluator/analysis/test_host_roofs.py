"""Roofs of a host are measured in a child process with a given number of threads."""

import subprocess

import pytest

from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.analysis.host_roofs import measure_roofs
from tests.support.evaluator.traces import ROOFS


def test_the_host_has_a_peak_and_bandwidths() -> None:
    roofs = measure_roofs(1)
    assert roofs.threads == 1
    assert roofs.peak == max(roof.best for roof in roofs.compute) > 1e8
    sizes = [roof.working_set for roof in roofs.bandwidth]
    assert sizes == sorted(sizes)
    assert all(roof.best >= roof.median > 0 and roof.n >= 1 for roof in (*roofs.compute, *roofs.bandwidth))


def test_the_bandwidth_of_a_working_set_is_that_of_the_next_measured_one() -> None:
    assert [ROOFS.bandwidth_for(size).working_set for size in (1, 1 << 18, 1 << 19, 1 << 40)] == [
        1 << 18, 1 << 18, 1 << 28, 1 << 28,
    ]  # fmt: skip


def test_a_measurement_that_fails_is_an_error_with_a_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise subprocess.CalledProcessError(-9, "python")

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(UnavailableError, match="cannot measure the roofs") as caught:
        measure_roofs(1)
    assert caught.value.next_step
