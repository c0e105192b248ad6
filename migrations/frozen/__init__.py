"""Frozen code for revisions: never changed once a revision uses it, and independent of other modules.

Nothing here imports benchlock, but for RFC 8785 (``artifacts.canonical``), and nothing here changes once a revision
uses it. A new revision that needs something else adds it beside what is here.
"""
