"""The Python API, which ``benchlock`` re-exports: a registry and its results for notebooks and scripts."""
