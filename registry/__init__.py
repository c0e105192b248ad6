"""What exists, what is allowed, what was chosen: manifests, catalogue, constraints, resolver, lockfile."""
