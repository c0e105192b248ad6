"""Runs a lock on this host: verifies what it names, starts the harness in a container or a process, records the run."""
