"""A registry as commands see it: one interface, for a folder of this machine and for a server."""
