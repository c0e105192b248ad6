"""Evidence of the level network: one batch in several numbers of parts."""
