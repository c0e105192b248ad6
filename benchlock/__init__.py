"""A reproducible artifact registry and evaluation store for deep learning."""
