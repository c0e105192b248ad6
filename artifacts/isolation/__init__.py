"""Run functions of this project in a child process with limits: see ``calls.py``."""
