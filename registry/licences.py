"""What stands under ``license``: an SPDX expression, or one of two words for what none says."""

from functools import lru_cache

from benchlock.artifacts.errors import InvalidInputError

OTHERS = ("various", "proprietary")
"""Words of our own: of several parts with a licence each, and of terms that SPDX has no name for."""

_ABSENT = ("", "todo", "unknown", "none", "n/a", "na", "tbd", "unlicensed", "-", "?")


@lru_cache(256)
def check_license(text: str) -> str | None:
    """What is odd about a licence, for a person to read; None where it is an SPDX expression or one of ours.

    Raises:
        InvalidInputError: it says that there is none.
    """
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression  # noqa: PLC0415 - a table

    if text.strip().lower() in _ABSENT:
        raise InvalidInputError(
            f"the license is {text!r}, which is none",
            next_step=f"write the SPDX expression of the files' licence, or one of {', '.join(OTHERS)}",
        )
    if text in OTHERS:
        return None
    try:
        proper = canonicalize_license_expression(text)
    except InvalidLicenseExpression:
        return f"the license {text!r} is no SPDX expression, by which others would know it"
    return None if proper == text else f"the license {text!r} is spelled {proper!r} by SPDX"
