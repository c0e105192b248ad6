"""Evaluation requests: the file format, its meaning, and requirements on platforms and hosts."""
