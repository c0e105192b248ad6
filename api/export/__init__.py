"""Runs and verdicts in the formats of other tools."""
