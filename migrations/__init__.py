"""The only way a schema is ever made."""
