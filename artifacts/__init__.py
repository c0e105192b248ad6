"""Blobs by digest: stores, uploads, sources, transfer over HTTP and bundles, whatever the bytes mean."""
