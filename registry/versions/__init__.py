"""Semantic versions, version ranges and version constraints."""
