"""Steps for texts: decoding and tokenizers."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..core.phase_environment import explain_missing_library
from .step_tensor import Source, StepError, Tensor, as_file

_ENTRY = re.compile(r"(.*\S)\s+([0-9]+)")


@dataclass(frozen=True, slots=True)
class Tokens:
    """The ``length`` tokens of a text: their ids, the mask (1 for a token, 0 for padding) and the segment of each."""

    ids: list[int]
    mask: list[int]
    types: list[int]


class _Tokenizer(Protocol):
    def encode(self, text: str) -> Tokens: ...


def decode(source: Source, *, encoding: str) -> Tensor:
    """Return the text of ``source``, decoded if it is bytes; a byte order mark stays."""
    source = as_file(source)
    if isinstance(source, np.ndarray):
        if source.ndim or not isinstance(source.item(), str | bytes):
            raise StepError(f"expected text, found an array {list(source.shape)} {source.dtype}")
        source = source.item()
    if isinstance(source, bytes):
        try:
            source = source.decode(encoding)
        except UnicodeDecodeError as error:
            raise StepError(f"byte {error.start} is not {encoding}: {error.reason}") from error
    return Tensor(np.asarray(source, dtype=object))


def tokenizer(folder: Path, *, kind: str, yields: str, **arguments: Any) -> Callable[[Tensor], Tensor]:  # noqa: ANN401 - the manifest's
    """Return the step ``tokenize``, which turns a text into int64 [length]; files in ``folder`` are read once.

    Raises:
        StepError: A file cannot be read, or lacks a token that the arguments name.
    """
    if yields not in Tokens.__dataclass_fields__:
        raise StepError(f"tokenize cannot return {yields!r}")
    if kind not in KINDS:
        raise StepError(f"unknown kind of tokens {kind!r}")
    encoder = KINDS[kind](folder, **arguments)

    def tokenize(tensor: Tensor) -> Tensor:
        text = tensor.values.item() if tensor.values.ndim == 0 else None
        if not isinstance(text, str):
            raise StepError(f"tokenize needs text, found {list(tensor.values.shape)} {tensor.values.dtype}")
        return tensor._replace(values=np.array(getattr(encoder.encode(text), yields), np.int64), layout=None)

    return tokenize


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Truncation and padding to a fixed number of tokens; ``truncate`` and ``pad_side`` are the affected end."""

    length: int
    truncate: str
    pad_side: str
    pad: int

    def __post_init__(self) -> None:
        if self.truncate not in ("start", "end") or self.pad_side not in ("start", "end"):
            raise StepError(f"truncate {self.truncate!r} and pad_side {self.pad_side!r} must be start or end")

    def fit(self, ids: list[int]) -> Tokens:
        tokens = ids[: self.length] if self.truncate == "end" else ids[max(0, len(ids) - self.length) :]
        missing, present = self.length - len(tokens), [1] * len(tokens)
        before, after = (0, missing) if self.pad_side == "end" else (missing, 0)
        return Tokens(
            [self.pad] * before + tokens + [self.pad] * after, [0] * before + present + [0] * after, [0] * self.length
        )


@dataclass(frozen=True, slots=True)
class _Words:
    vocabulary: Mapping[str, int]
    pattern: re.Pattern[str]
    lowercase: bool
    start: int | None
    unknown: int
    fitting: _Fitting

    def encode(self, text: str) -> Tokens:
        """Split the text at matches of the pattern, and keep the matched groups; empty strings are no words."""
        words = self.pattern.split(text.lower() if self.lowercase else text)
        prefix = [] if self.start is None else [self.start]
        return self.fitting.fit(prefix + [self.vocabulary.get(word, self.unknown) for word in words if word])


def _words(  # noqa: PLR0913 - the manifest's
    folder: Path,
    *,
    vocabulary: str,
    pattern: str,
    lowercase: bool,
    start: str | None,
    unknown: str,
    pad: str,
    length: int,
    truncate: str,
    pad_side: str,
) -> _Tokenizer:
    ids = read_vocabulary(folder / vocabulary)
    special = [token for token in (start, unknown, pad) if token is not None and token not in ids]
    if special:
        raise StepError(f"{vocabulary} has no token {special[0]!r}")
    try:
        splitting = re.compile(pattern)
    except re.error as error:
        raise StepError(f"invalid regular expression {pattern!r}: {error}") from error
    start_id = None if start is None else ids[start]
    return _Words(ids, splitting, lowercase, start_id, ids[unknown], _Fitting(length, truncate, pad_side, ids[pad]))


@lru_cache(maxsize=8)
def read_vocabulary(path: Path) -> Mapping[str, int]:
    """Return the id of each token: the number on its line, or the line's index from 0.

    A file has lines of one form only.

    Raises:
        StepError: The file has lines of both forms, has a token twice, or is not UTF-8.
    """
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise StepError(f"{path.name}: byte {error.start} is not UTF-8") from error
    entries = [(index, line.removesuffix("\r")) for index, line in enumerate(lines) if line.removesuffix("\r")]
    numbered = {index: entry for index, line in entries if (entry := _ENTRY.fullmatch(line))}
    if numbered and len(numbered) < len(entries):
        index, line = next((index, line) for index, line in entries if index not in numbered)
        raise StepError(f"{path.name}, line {index + 1}: {line!r} has no number, but other lines have")
    ids: dict[str, int] = {}
    for index, line in entries:
        token, number = (numbered[index][1], int(numbered[index][2])) if numbered else (line, index)
        if token in ids:
            raise StepError(f"{path.name}, line {index + 1}: duplicate token {token!r}")
        ids[token] = number
    return ids


@dataclass(frozen=True, slots=True)
class _JsonTokenizer:
    tokenizer: Any
    length: int

    def encode(self, text: str) -> Tokens:
        encoding = self.tokenizer.encode(text)
        if len(encoding.ids) != self.length:
            raise StepError(f"the tokenizer returned {len(encoding.ids)} tokens, expected {self.length}")
        return Tokens(encoding.ids, encoding.attention_mask, encoding.type_ids)


@lru_cache(maxsize=8)
def _load_tokenizer(folder: Path, *, file: str, length: int, truncate: str, pad_side: str, pad: str) -> _Tokenizer:
    """Load a tokenizer file: its normalizer, splitting, model and special tokens, not its truncation and padding."""
    loaded = _load(folder / file)
    number = loaded.token_to_id(pad)
    if number is None:
        raise StepError(f"{file} has no token {pad!r}")
    special = loaded.num_special_tokens_to_add(is_pair=False)
    if length < special:
        raise StepError(f"{file} adds {special} special tokens, which exceeds the length {length}")
    fitting = _Fitting(length, truncate, pad_side, number)
    sides = {"start": "left", "end": "right"}
    loaded.enable_truncation(length, direction=sides[fitting.truncate])
    loaded.enable_padding(direction=sides[fitting.pad_side], pad_id=number, pad_type_id=0, pad_token=pad, length=length)
    return _JsonTokenizer(loaded, length)


def _load(path: Path) -> Any:  # noqa: ANN401 - the library has no types
    with explain_missing_library("the step tokenize of the kind tokenizer-json"):
        from tokenizers import Tokenizer  # noqa: PLC0415 - large, and only for this kind
    content = path.read_text(encoding="utf-8")
    try:
        return Tokenizer.from_str(content)
    except Exception as error:
        raise StepError(f"{path.name} is not a tokenizer: {error}") from error


KINDS: Mapping[str, Callable[..., _Tokenizer]] = {"words": _words, "tokenizer-json": _load_tokenizer}
"""The factory of a tokenizer, by the argument ``kind``."""
