"""One run of a lock on this host, in a container or as a process."""
