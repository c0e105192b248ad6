"""The routes, a module a resource: each has ``routes(service)``, which makes its router."""

from collections.abc import Callable
from typing import Final

from litestar import Router

from benchlock.api.http.routes import (
    access,
    artifacts,
    blobs,
    caller,
    described,
    health,
    held,
    jobs,
    leases,
    locks,
    publishing,
    runs,
    upkeep,
)
from benchlock.api.http.service import Service

ROUTERS: Final[tuple[Callable[[Service], Router], ...]] = (
    health.routes,
    described.routes,
    artifacts.routes,
    publishing.routes,
    locks.routes,
    runs.routes,
    held.routes,
    blobs.routes,
    upkeep.routes,
    jobs.routes,
    leases.routes,
    access.routes,
    caller.routes,
)
"""What is served. A new resource is a line here; each of its routes says in ``opt`` what it needs."""
