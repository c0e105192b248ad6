"""Bundles: documents and their blobs in one file, an OCI image layout in an uncompressed tar."""
