"""Tokens, and a clock that stands until it is set."""

import pytest
from sqlalchemy import Engine

from benchlock.registry.auth.tokens import Tokens
from tests.support.system.clocks import Standing


@pytest.fixture
def standing() -> Standing:
    return Standing()


@pytest.fixture
def tokens(database: Engine, standing: Standing) -> Tokens:
    return Tokens(database, standing)
