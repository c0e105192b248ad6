"""Implementations of the registry interface: in a folder of this machine and on a server."""
