"""Simulations that show how often intervals hold the truth and how often decisions are wrong."""
