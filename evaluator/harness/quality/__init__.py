"""Quality metrics: comparison of predictions with labels, sample by sample."""
