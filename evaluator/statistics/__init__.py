"""Metrics with confidence intervals, as pure functions of samples."""
