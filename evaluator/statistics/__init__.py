"""From what a run measured to metrics with intervals. Pure: no files, no clock, no database."""
