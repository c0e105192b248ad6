"""Timed phases: prepared tensors, stored bytes, cold starts, several rates."""
