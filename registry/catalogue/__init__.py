"""The catalogue of published versions and of locks, in SQL."""
