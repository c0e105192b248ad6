"""Environments of frameworks: wheels by digest, the layers made of them, and virtual environments of the same."""
