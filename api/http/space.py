"""Free disk space of the service: who may use the reserve, and what is refused while nothing else is free."""

from typing import Final

from api.http.service import Service
from registry.access.actors import acting

_SHARE_WHILE_RUNNING: Final = 0.5


def reserve_share() -> float:
    """Return the part of the reserve that the caller leaves alone: half of it where the caller may record runs.

    So a run that was claimed can be ended, and the other half stays for the database.
    """
    return _SHARE_WHILE_RUNNING if acting().scopes.allow("run") else 1.0


def require_space(service: Service) -> None:
    """Require free space for a request that adds a document to the registry.

    Raises:
        LowSpaceError: Nothing is free beside the caller's part of the reserve.
    """
    service.reserve.require(0, reserve_share())
