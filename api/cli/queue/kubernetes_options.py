"""Callbacks that check the options of ``cluster kubernetes``."""

import re
from typing import Final

import click

from benchlock.artifacts.errors import InvalidInputError

_LABEL_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9./_-]*")
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


def parse_labels(
    _context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Split labels ``KEY=VALUE``; raise if one is invalid."""
    pairs = [text.partition("=") for text in texts]
    for key, equals, value in pairs:
        if not equals or not _LABEL_KEY.fullmatch(key) or "," in value:
            raise InvalidInputError(
                f"invalid label {key + equals + value!r}",
                where="--node-selector",
                next_step="write KEY=VALUE, and the option again for another label",
            )
    return tuple((key, value) for key, _, value in pairs)


def check_taint_keys(_context: click.Context, _parameter: click.Parameter, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys of taints; raise if one is invalid."""
    for key in keys:
        if not _LABEL_KEY.fullmatch(key):
            raise InvalidInputError(
                f"invalid key of a taint {key!r}",
                where="--toleration",
                next_step="write the key alone, without value and effect, such as nvidia.com/gpu",
            )
    return keys


def check_prefix(_context: click.Context, _parameter: click.Parameter, prefix: str) -> str:
    """Return the prefix of machine names; raise if it is invalid."""
    if prefix and not _PREFIX.fullmatch(prefix):
        raise InvalidInputError(
            f"invalid prefix of machine names {prefix!r}",
            where="--machine-prefix",
            next_step="write 1 to 32 letters, digits, '.', '_' and '-', the first a letter or a digit",
        )
    return prefix
