"""A run as an in-toto statement with SLSA provenance: which bytes produced the files of its results.

The statement is not signed; tools that sign statements take it as it is.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from benchlock.artifacts.digest import to_hex
from benchlock.artifacts.user_output import escape_json
from benchlock.evaluator.records.run_types import Run
from benchlock.registry.database.ids_and_timestamps import format_time
from benchlock.registry.lock.lockfile import Lock, list_blob_references, title

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
BUILD_TYPE: Final = "urn:benchlock:run:1"
"""The meaning of the parameters: ``lock`` is the id of the lock, which determines all dependencies."""


def format_statement(run: Run, lock: Lock) -> str:
    """Format a verified run as an in-toto statement (version 1) with SLSA provenance (version 1).

    Its subjects are the files of the results by role, such as ``predictions``, or ``weights-0`` of a training. Its
    dependencies are the manifests of the lock's artifacts, and every file that the lock names.
    """
    assert run.end is not None
    subjects = [
        {"name": role, "digest": {"sha256": to_hex(blob.digest)}} for role, blob in sorted(run.end.blobs.items())
    ]
    document = {
        "_type": STATEMENT,
        "subject": subjects,
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {"lock": lock.id, "request": lock.document["request"]},
                "internalParameters": {"isolation": run.start.isolation, "platform": run.start.platform_name},
                "resolvedDependencies": list(_list_dependencies(lock, run.start.platform_name)),
            },
            "runDetails": {
                "builder": {"id": f"urn:benchlock:harness:{lock.harness.version}"},
                "metadata": {
                    "invocationId": run.id,
                    "startedOn": format_time(run.start.started_at),
                    "finishedOn": format_time(run.end.ended_at),
                },
            },
        },
    }
    return escape_json(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)) + "\n"


def _list_dependencies(lock: Lock, platform: str) -> Iterator[dict[str, Any]]:
    """Yield the artifacts with the digests of their manifests, then the files of a run, each digest once."""
    seen = set()
    for kind, artifact in lock.artifacts().items():
        seen.add(artifact.digest)
        yield {"name": title(kind, artifact), "digest": {"sha256": to_hex(artifact.digest)}}
    for reference in list_blob_references(lock):
        is_used = reference.platform is None or str(reference.platform) == platform
        if is_used and reference.digest not in seen:
            seen.add(reference.digest)
            yield {"name": reference.name, "digest": {"sha256": to_hex(reference.digest)}}
