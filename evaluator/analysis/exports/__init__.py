"""Traces in the formats of viewers: pure functions from a trace to the bytes of a file."""
