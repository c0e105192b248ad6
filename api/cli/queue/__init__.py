"""Commands for the job queue, machines, clusters and matrices."""
