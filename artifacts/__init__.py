"""Bytes and digests: what a blob is, where it is kept, where it comes from. Knows nothing of what the bytes mean."""
