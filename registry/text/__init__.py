"""Text formats: YAML, TOML, quantities, decoding into types, and the problems found in a text."""
