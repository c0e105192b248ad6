import os
from collections.abc import Callable
from pathlib import Path

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.images.image_layers import list_files
from benchlock.evaluator.images.wheel_install import Layout, install_wheel

LAYOUT = Layout("/opt/x", "/opt/x/site-packages", "/usr/bin/python3")


def test_each_part_of_a_wheel_has_its_place(tmp_path: Path, make_wheel: Callable[..., Path]) -> None:
    wheel = make_wheel(
        "tool",
        files={
            "tool/__init__.py": "def main(): ...\n",
            "tool/__pycache__/__init__.cpython-311.pyc": "somebody's",
            "tool-1.0.data/data/share/tool.txt": "text",
            "tool-1.0.data/scripts/tool-script": "#!python\nimport tool\n",
            "tool-1.0.data/headers/tool.h": "int x;",
            "tool-1.0.dist-info/entry_points.txt": "[console_scripts]\ntool = tool:main\n",
        },
    )
    install_wheel(wheel, tmp_path / "tree", LAYOUT)
    files = dict(list_files(tmp_path / "tree"))
    assert set(files) == {
        "opt/x/bin/tool",
        "opt/x/bin/tool-script",
        "opt/x/include/tool.h",
        "opt/x/share/tool.txt",
        "opt/x/site-packages/tool/__init__.py",
        *(
            f"opt/x/site-packages/tool-1.0.dist-info/{name}"
            for name in ("INSTALLER", "METADATA", "RECORD", "WHEEL", "entry_points.txt")
        ),
    }
    for script in ("opt/x/bin/tool", "opt/x/bin/tool-script"):
        assert files[script].read_text().startswith("#!/usr/bin/python3\n")
    assert os.access(files["opt/x/bin/tool"], os.X_OK)


def test_a_wheel_that_writes_outside_its_folder_is_refused(tmp_path: Path, make_wheel: Callable[..., Path]) -> None:
    wheel = make_wheel("evil", files={"../../../evil.py": "x = 1\n"})
    with pytest.raises(InvalidInputError, match="evil"):
        install_wheel(wheel, tmp_path / "tree", LAYOUT)
    assert not list(tmp_path.rglob("evil.py"))


def test_a_file_that_is_no_wheel_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "broken-1.0-py3-none-any.whl"
    wheel.write_bytes(b"no zip")
    with pytest.raises(InvalidInputError, match=r"cannot install broken-1\.0-py3-none-any\.whl"):
        install_wheel(wheel, tmp_path / "tree", LAYOUT)
