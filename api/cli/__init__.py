"""The command line: argument parsing, calls to the other packages, and printed results."""
