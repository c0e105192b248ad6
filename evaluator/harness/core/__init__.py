"""Basics of every phase: the job, failures, reports and child processes; standard library only."""
