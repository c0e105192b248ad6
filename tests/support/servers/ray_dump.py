"""Print what the head of a Ray cluster tells anyone with its token: nodes, jobs, workers, tasks and its stored keys."""

import sys

import ray
from ray._private.state import state
from ray._raylet import GcsClient  # type: ignore[attr-defined] # made in C

NAMESPACES = (b"cluster", b"fun", b"job", b"job_submission", b"tracing", b"session", b"dashboard", b"_autoscaler", None)

if __name__ == "__main__":
    ray.init(address=sys.argv[1], logging_level="ERROR", log_to_driver=False)  # type: ignore[arg-type]
    client = GcsClient(address=sys.argv[1])
    for table in ("node_table", "job_table", "workers", "profile_events"):
        sys.stdout.write(f"{getattr(state, table)()}\n")
    for namespace in NAMESPACES:
        for key in client.internal_kv_keys(b"", namespace=namespace):
            sys.stdout.write(f"{key!r}: {client.internal_kv_get(key, namespace=namespace)!r}\n")
