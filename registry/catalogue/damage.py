"""The error of a damaged database."""

from typing import Final

from sqlalchemy.exc import MultipleResultsFound, NoResultFound

from benchlock.artifacts.errors import IntegrityError

RESTORE: Final = "run `benchlock verify` to list all damage, then restore the registry from a backup"
UNDECODABLE: Final = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MultipleResultsFound,
    NoResultFound,
    TypeError,
    ValueError,
)
"""What code raises that decodes a row whose bytes were changed."""


class DamagedDatabaseError(IntegrityError):
    """The database holds something else than what was written."""

    code = "damaged-database"


RESTORE_NOW: Final = "restore the registry from a backup"
"""The next step of a fault in a report of all damage."""


def damage_error(what: str, where: str | None = None) -> DamagedDatabaseError:
    """Return the error that says ``what`` is damaged."""
    return DamagedDatabaseError(f"the database is damaged: {what}", where=where, next_step=RESTORE)
