"""Bounded readers of foreign file formats."""
