"""The job queue: jobs, worker machines, leases with fencing, and the worker agent."""
