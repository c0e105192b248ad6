"""URL checks: HTTPS only, and no credentials in messages."""

import ipaddress
import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from benchlock.artifacts.errors import InvalidInputError

_PORTS: Final = {"https": 443, "http": 80}
_USER: Final = re.compile(r"(?<=//)[^/?#]*@")
_PASSWORD: Final = re.compile(r"(?<=//)[^/?#@]*:[^/?#]*@")
_ANY_USER: Final = re.compile(r"(?<=//).*@", re.DOTALL)  # in an invalid URL, a password may contain a slash


def split_url(url: str) -> SplitResult:
    """Split a URL into its parts.

    Raises:
        InvalidInputError: The text is not a URL.
    """
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:  # its text may contain a part of a password
        shown = redact_url(_ANY_USER.sub("", url))
        raise InvalidInputError(
            f"invalid URL {shown}: invalid host or port", where=shown, next_step="correct it"
        ) from None
    return split


def check_url(url: str, *, loopback_http: bool) -> SplitResult:
    """Split a URL that bytes may be read from; ``loopback_http`` permits unencrypted HTTP on this machine.

    Raises:
        InvalidInputError: The text is not a URL, has credentials or no host, or is not encrypted.
    """
    split = split_url(url)
    shown = redact_url(url)
    if split.username is not None:
        raise InvalidInputError(
            f"{shown} contains a user name or password", where=shown, next_step="write the URL without credentials"
        )
    if not split.hostname:
        raise InvalidInputError(f"{shown} has no host", where=shown, next_step="write https://host/path")
    if split.scheme != "https" and not (loopback_http and split.scheme == "http" and is_loopback(split.hostname)):
        raise InvalidInputError(f"{shown} is not an https: URL", where=shown, next_step="use https:")
    return split


def redact_url(url: str) -> str:
    """Remove credentials and the query, which may be secret, from a URL or an invalid URL."""
    return _USER.sub("", re.split("[?#]", url, maxsplit=1)[0])


def redact_password(source: str) -> str:
    """Remove a password from a source whose scheme has no users, where an @ has another meaning."""
    return _PASSWORD.sub("", source)


def find_origin(url: str) -> tuple[str, str, int]:
    """Return the origin of a URL: scheme, host and port."""
    split = split_url(url)
    return split.scheme, split.hostname or "", split.port or _PORTS.get(split.scheme, 0)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its name or address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
