"""Frozen code for revisions: unchanged once a revision uses it, and independent of other modules.

The only import from benchlock is the canonical encoding (``artifacts.json_codec``). A new revision that needs other
code adds it here, next to the existing code.
"""
