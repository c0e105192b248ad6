"""The HTTP service of a registry: request handling, limits, and the server process."""
