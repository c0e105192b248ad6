"""Matrices of evaluations: submitted as jobs of the queue, and read as tables."""
