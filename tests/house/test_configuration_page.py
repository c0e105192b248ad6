"""The reference page of settings is that of the table, and the table has every variable in the code."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from benchlock.api.settings import KEYS, SETTINGS, VARIABLES
from tests.house.configuration_page import generate

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = re.compile(r"\bBENCHLOCK_[A-Z0-9_]*[A-Z0-9]\b")
INVENTED = {"BENCHLOCK_TOKENFILE", "BENCHLOCK_SERVICE_HOST", "BENCHLOCK_PORT", "BENCHLOCK_PORT_8080_TCP_ADDR"}
"""Unknown variables in a test."""


def test_the_page_has_not_drifted() -> None:
    """``make configuration`` writes it anew."""
    assert (ROOT / "docs/reference/configuration.md").read_text(encoding="utf-8") == generate()


def test_the_table_has_every_variable_and_no_other() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True)
    names: set[str] = set()
    for path in listed.stdout.split("\0"):
        if (ROOT / path).is_file() and path not in ("api/settings.py", "docs/reference/configuration.md"):
            names |= set(VARIABLE.findall((ROOT / path).read_text(encoding="utf-8", errors="ignore")))
    assert names - INVENTED == VARIABLES


def test_a_variable_occurs_once() -> None:
    names = [setting.variable for setting in SETTINGS if setting.variable]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("key", KEYS)
def test_a_key_has_the_name_of_its_variable_and_a_valid_example(key: str) -> None:
    setting = KEYS[key]
    assert setting.variable in ("", f"BENCHLOCK_{key.upper()}")
    value = tomllib.loads(f"{key} = {setting.example}")[key]
    assert isinstance(value, list) == setting.type.startswith("list")
