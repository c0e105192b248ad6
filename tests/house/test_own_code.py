"""No code of others in the repository: no minified lines, no licence headers of foreign files."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = {".py", ".js", ".mjs", ".css", ".html", ".jinja", ".sh"}
LONGEST = 500
LICENCE = re.compile(
    r"@licen[cs]e|SPDX-Licen[cs]e|Copyright \(c\)|Permission is hereby granted|Licensed under the|/\*!",
    re.IGNORECASE,
)
THIS = "tests/house/test_own_code.py"


def list_code() -> list[Path]:
    """Return the source files in git."""
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listing.splitlines() if Path(name).suffix in CODE and name != THIS]


def test_no_line_is_minified() -> None:
    paths = list_code()
    assert any(path.suffix == ".js" for path in paths)
    long = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > LONGEST
    ]
    assert not long


def test_no_file_has_the_licence_of_another_project() -> None:
    assert not [str(path.relative_to(ROOT)) for path in list_code() if LICENCE.search(path.read_text(encoding="utf-8"))]
