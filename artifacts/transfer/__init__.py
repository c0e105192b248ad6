"""Blobs over HTTP by the OCI distribution protocol: streams and sessions that resume, for whoever speaks it."""
