"""Every table that the revisions make: catalogue, access, records and queue share one metadata."""

from evaluator.dispatch.tables import jobs
from registry.access.tables import tokens

METADATA = jobs.metadata
assert tokens.metadata is METADATA
