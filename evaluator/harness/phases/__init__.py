"""The phases of a job, each run in its own process."""
