"""Claims of papers, measured again by runs of benchlock; ``__main__`` writes docs/explanation/claims.md."""
