"""The worker: takes jobs of a queue, one at a time, and runs them on this machine."""
