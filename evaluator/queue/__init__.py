"""The job queue: jobs, worker machines, and leases with fencing."""
