"""Manifests of others in the native form: text in, text and findings out; no file is touched.

What an original says certainly is written. What it leaves unsaid, or what has no form here, stands as a ``# TODO`` line
where it belongs, and is listed. Nothing is guessed silently.
"""
