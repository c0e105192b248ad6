"""Launchers: they start workers on machines of a cluster engine, and decide nothing about jobs."""
