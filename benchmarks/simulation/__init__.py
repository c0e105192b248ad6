"""Simulations that show how often intervals contain the true value and how often decisions are wrong."""
