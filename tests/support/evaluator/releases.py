"""Harnesses of tests that count as released ones."""

import pytest

from benchlock.evaluator import harness_releases
from benchlock.registry.lock.lockfile import LockedHarness


def release(monkeypatch: pytest.MonkeyPatch, harness: LockedHarness) -> None:
    """Make a harness a released one, for this test."""
    monkeypatch.setattr(harness_releases, "RELEASES", {**harness_releases.RELEASES, harness.digest: harness.version})
