"""Analyses of traces: pure functions from stored spans to tables; no framework is imported."""
