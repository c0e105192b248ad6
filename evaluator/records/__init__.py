"""Records of runs: model, documents, SQL tables, and comparisons of records."""
