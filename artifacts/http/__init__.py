"""The blobs of a registry on a server: a client of its part of the protocol, and the store over that."""
