"""Reports on recorded runs: tables, charts and one HTML page, byte-identical for the same runs."""
