"""The text of a token: ``benchlock_``, 256 random bits and a checksum.

Secret scanners find tokens by ``PATTERN``, and the checksum tells without a lookup whether a match is a token. Only the
SHA-256 of a token is stored. It needs no slow hash, because 256 random bits cannot be guessed.
"""

import re
import secrets
import string
import zlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, NewType

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.registry.auth.permissions import Scopes, UnauthorizedError

TokenId = NewType("TokenId", str)
State = Literal["valid", "expired", "revoked"]

PREFIX: Final = "benchlock_"
PATTERN: Final = rf"{PREFIX}[0-9A-Za-z]{{49}}"
DEFAULT_LIFETIME_DAYS: Final = 90

_ALPHABET: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RANDOM_BYTES: Final = 32
_RANDOM_DIGITS: Final = 43  # 62 ** 43 is more than 2 ** 256
_CHECK_DIGITS: Final = 6  # 62 ** 6 is more than 2 ** 32
_TOKEN: Final = re.compile(PATTERN)
_TOKEN_LIKE: Final = re.compile(
    rf"{PREFIX}(?:(?!{PREFIX})[0-9A-Za-z]){{20,}}"
)  # a part of a token must not be shown either


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its text.

    ``expires_at`` is the expiry of its newest secret. If the token was found by an older secret, it is the expiry of
    that secret.
    """

    id: TokenId
    name: str
    scopes: Scopes
    created_by: str
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    rotated_at: datetime | None = None

    def state(self, at: datetime) -> State:
        """Return whether the token is valid, expired or revoked at a time."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at <= at else "valid"


@dataclass(frozen=True, slots=True)
class Secret:
    """The text of a token, which neither ``repr`` nor ``str`` shows."""

    text: str = field(repr=False)

    def __str__(self) -> str:
        """Return the prefix alone."""
        return f"{PREFIX}…"

    @property
    def digest(self) -> Digest:
        """The SHA-256 of the text, which is stored in its place."""
        return digest_bytes(self.text.encode())


def new_secret(random: bytes | None = None) -> Secret:
    """Create the text of a new token."""
    number = int.from_bytes(random if random is not None else secrets.token_bytes(_RANDOM_BYTES))
    text = PREFIX + _digits(number, _RANDOM_DIGITS)
    return Secret(text + _checksum(text))


def parse_secret(text: str) -> Secret:
    """Parse the text of a token.

    Raises:
        UnauthorizedError: The text is malformed. The message contains no part of it.
    """
    if not _TOKEN.fullmatch(text) or _checksum(text[:-_CHECK_DIGITS]) != text[-_CHECK_DIGITS:]:
        raise UnauthorizedError(
            "malformed token (checksum mismatch)",
            next_step=f"send the complete token, which begins with {PREFIX}, as printed when it was created",
        )
    return Secret(text)


def mask_tokens(text: str) -> str:
    """Replace tokens, and texts that look like tokens, in ``text``."""
    return _TOKEN_LIKE.sub(f"{PREFIX}…", text)


def _checksum(text: str) -> str:
    return _digits(zlib.crc32(text.encode()), _CHECK_DIGITS)


def _digits(number: int, count: int) -> str:
    characters = []
    for _ in range(count):
        number, digit = divmod(number, len(_ALPHABET))
        characters.append(_ALPHABET[digit])
    return "".join(reversed(characters))
