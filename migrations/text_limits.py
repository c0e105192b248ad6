"""The limits of the text columns of the schema, in bytes: what the newest revision's triggers enforce.

A column of a type with a length holds ids, digests and words of our own, which are checked where they are parsed.
"""

from collections.abc import Mapping
from typing import Final

from sqlalchemy import JSON, Text

from benchlock.artifacts import limits
from benchlock.migrations.schema import METADATA
from benchlock.registry.catalogue.text_limits import TextLimits

_PLATFORM: Final = dict.fromkeys(("os", "arch", "device", "python"), limits.WORD)
_VERSION: Final = {"name": limits.NAME, "precedence": 1024}
_FIGURE: Final = {"name": limits.WORD, "unit": limits.WORD}
_CHOSEN: Final = tuple(
    f"{kind}{part}" for kind in ("model", "dataset", "framework", "image") for part in ("", "_version")
)

_LIMITS: Final[Mapping[str, Mapping[str, int]]] = {
    "versions": _VERSION | dict.fromkeys(("version", "framework", "framework_version"), limits.NAME),
    "manifests": _VERSION | dict.fromkeys(("content", "authored", "sources"), limits.MANIFEST),
    "files": _VERSION | {"path": limits.PATH},
    "requirements": _VERSION | {"required_name": limits.NAME, "range": limits.CONSTRAINT},
    "platforms": _VERSION | _PLATFORM,
    "environments": _VERSION | _PLATFORM | {"framework": limits.NAME, "framework_precedence": 1024},
    "yanks": _VERSION | {"reason": limits.REASON},
    "locks": dict.fromkeys(_CHOSEN, limits.NAME) | {"text": limits.LOCK, "request": limits.WORD},
    "imported_platforms": _PLATFORM,
    "runs": {"platform": limits.PLATFORM, "host": limits.HOST, "process": limits.PROCESS},
    "held_runs": {"owner": limits.NAME},
    "run_ends": {
        "failure_class": limits.WORD,
        "failure_message": limits.FAILURE_MESSAGE,
        "timings": limits.TIMINGS,
        "details": limits.DETAILS,
    },
    "run_metrics": _FIGURE,
    "run_batch_metrics": _FIGURE,
    "run_packages": {"name": limits.WORD, "version": limits.WORD},
    "run_blobs": {"role": limits.ROLE},
    "record_chain": {"key": 2048},
    "hidings": {"reason": limits.REASON},
    "tokens": {"name": limits.NAME, "scopes": limits.SCOPES, "created_by": limits.NAME},
    "actions": {"actor": limits.NAME} | dict.fromkeys(("action", "target", "request", "reason"), limits.AUDIT_TEXT),
    "dispatch": {"queue": limits.NAME, "boot": limits.NAME},
    "classes": {"wants": limits.WANTS},
    "machines": {
        "id": limits.MACHINE,
        "boot": limits.MACHINE,
        "facts": limits.MACHINE_FACTS,
        "draining": limits.REASON,
        "owner": limits.NAME,
        "faulty": limits.LACKS,
        "held": limits.REASON,
    },
    "eligible": {"machine": limits.MACHINE, "lacks": limits.LACKS},
    "jobs": {"failure": limits.WORD, "reason": limits.REASON, "owner": limits.NAME},
    "avoided": {"machine": limits.MACHINE},
    "leases": {
        "machine": limits.MACHINE,
        "boot": limits.MACHINE,
        "owner": limits.NAME,
        "reason": limits.REASON,
        "nonce": limits.MACHINE,
    },
    "lease_slots": {"machine": limits.MACHINE},
}


def text_limits() -> tuple[TextLimits, ...]:
    """Return the limits of every table with a column of unlimited text or JSON.

    Raises:
        KeyError: such a column has no limit here.
    """
    return tuple(
        TextLimits(table.name, tuple((name, _LIMITS[table.name][name]) for name in sorted(names)))
        for table in METADATA.sorted_tables
        if (names := [one.name for one in table.columns if isinstance(one.type, Text | JSON)])
    )
