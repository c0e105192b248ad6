"""Lock files: format, creation, checks, differences and explanations."""
