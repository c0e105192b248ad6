"""Manifests outlined from files: what a file says certainly is written, what it leaves open stands as a TODO line.

Nothing that changes a result is guessed, and nothing that runs code is loaded.
"""
