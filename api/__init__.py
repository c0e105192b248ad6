"""The command line, the HTTP service and its client, and the registry of this machine that they use."""
