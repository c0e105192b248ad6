"""What the blobs of a run say, and whether its record says the same."""
