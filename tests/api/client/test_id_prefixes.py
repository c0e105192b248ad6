"""Beginnings of ids, without a registry."""

import pytest

from benchlock.api.client.id_prefixes import Candidates, complete_prefix
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError

IDS = [f"run/01ka{'0' * 21}{last}" for last in "12"]


def find(prefix: str, limit: int) -> Candidates:
    return [(id_, "noon") for id_ in IDS if id_.startswith(prefix)][:limit]


def test_the_beginning_of_one_id_is_completed() -> None:
    ids = [IDS[0], "run/02kb" + "0" * 22]
    for text in ("02kb", "run/02kb", "02kb00"):
        assert complete_prefix("run", text, lambda prefix, _: [(i, "") for i in ids if i.startswith(prefix)]) == ids[1]


def test_other_texts_are_unchanged() -> None:
    for text in ("01k", "model/01ka", "a.lock", "01KA", IDS[0]):
        assert complete_prefix("run", text, find) == text
    assert complete_prefix("run", "7zzz", find, only=False) == "7zzz"


def test_a_beginning_of_several_or_of_no_id_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match="ambiguous id run/01ka") as caught:
        complete_prefix("run", "01ka", find)
    assert caught.value.where == f"{IDS[0]} (noon); {IDS[1]} (noon)"
    with pytest.raises(UnknownNameError, match="no run id begins with run/7zzz"):
        complete_prefix("run", "run/7zzz", find, only=False)
