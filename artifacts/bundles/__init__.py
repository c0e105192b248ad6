"""Bundles: documents and the blobs that they name in one file, an OCI image layout in a tar without compression."""
