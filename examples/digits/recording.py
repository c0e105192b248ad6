"""A recording of the first number as an SVG picture of a terminal: the real output of the real commands."""

import argparse
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parents[2]
PICTURE = ROOT / "docs" / "assets" / "terminal.svg"
COMMANDS = (
    "benchlock image build onnxruntime==1.31.1 --no-layers",
    "benchlock publish examples/digits/dataset.yaml examples/digits/models/digits-onnx.yaml",
    "benchlock lock examples/digits/requests/digits-onnx.yaml -o digits.lock",
    "benchlock run digits.lock | head -n 11",
    "benchlock rerun digits.lock | tail -n 6 | head -n 2",
)
COLUMNS = 112
FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""What a browser would load from elsewhere."""


def record(folder: Path) -> Console:
    """Run the commands in a folder with a registry of its own."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    (folder / "examples").symlink_to(ROOT / "examples")
    variables = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "BENCHLOCK_REGISTRY": str(folder / "registry"),
        "FORCE_COLOR": "1",
        "COLUMNS": str(COLUMNS),
    }
    for command in COMMANDS:
        console.print(Text.assemble(("$ ", "green"), (command, "bold")))
        words = ["bash", "-o", "pipefail", "-c", command]
        done = subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, check=False)
        if done.returncode and "head" not in command:  # head closes the pipe before all is written
            sys.exit(f"{shlex.join(words)}: {done.returncode}\n{done.stderr}")
        console.print(Text.from_ansi(done.stdout.rstrip()), soft_wrap=False)
        console.print()
    return console


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", nargs="?", type=Path, default=PICTURE)
    picture = parser.parse_args().picture
    with tempfile.TemporaryDirectory(prefix="benchlock-recording-") as folder:
        console = record(Path(folder))
    svg = console.export_svg(title="benchlock", theme=MONOKAI, unique_id="terminal")
    picture.write_text(FONTS.sub("", svg), encoding="utf-8")


if __name__ == "__main__":
    main()
