"""Inspection of files before publishing, without loading any framework."""
