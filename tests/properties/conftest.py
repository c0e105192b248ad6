"""Examples have no time limit: a loaded machine makes no property false."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
