"""Runs of locks: images, harness, runner, records, evidence, statistics, queue and workflows."""
