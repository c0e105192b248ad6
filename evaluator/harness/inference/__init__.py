"""From a stored sample to its checked prediction."""
