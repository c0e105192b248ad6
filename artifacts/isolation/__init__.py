"""Functions of this project that run in a child process with limits: see ``calls.py``."""
