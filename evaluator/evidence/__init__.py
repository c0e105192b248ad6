"""Evidence of a run: its blobs, recomputed and compared with its record."""
