"""Every table that the revisions make: catalogue, access, records and queue share one metadata."""

from benchlock.evaluator.dispatch.tables import jobs
from benchlock.registry.access.tables import tokens

METADATA = jobs.metadata
assert tokens.metadata is METADATA
