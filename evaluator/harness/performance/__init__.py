"""Timed phases: scenarios, load generation and measurement."""
