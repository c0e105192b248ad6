"""Blobs over HTTP by the OCI distribution protocol: URLs, sessions, resumable downloads and uploads."""
