"""Runs through a queue: jobs, the machines that may take them, leases with a fence, and the agent that measures."""
