"""Version resolution: the search, its candidates, conflicts and proposed fixes."""
