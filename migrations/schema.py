"""Every table that the revisions make: catalogue, access and records share one metadata."""

from evaluator.records.tables import runs
from registry.access.tables import tokens

METADATA = runs.metadata
assert tokens.metadata is METADATA
