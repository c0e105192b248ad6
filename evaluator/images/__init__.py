"""Images and virtual environments of frameworks, built from wheels by digest."""
