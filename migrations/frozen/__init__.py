"""Frozen code for revisions: what it does never changes once a revision uses it, and it depends on no other module.

The only import from benchlock is the canonical encoding (``artifacts.json_codec``). A new revision that needs other
code adds it here, next to the existing code. Names and files may change; the SQL and the bytes that it makes may not.
"""
