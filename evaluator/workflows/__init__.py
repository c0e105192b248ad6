"""Use cases over runs: run, rerun, repeat, compare, judge claims, bundle and export."""
