"""What exists and what was chosen: manifests, catalogue, version resolution and lock files."""
