"""The benchmark of overheads measures on a registry that has images alone, whatever it published before."""

from pathlib import Path

import pytest

from benchmarks import overhead
from benchmarks.timing.laboratory import Laboratory

_MANIFEST = """
schema: 1
kind: dataset
name: one
version: 1.0.0
license: CC0-1.0
format: image-index
splits:
  one: {{index: data.csv, samples: 1}}
files:
  - {{path: data.csv, source: ./data.csv}}
  - {{path: {number}.png, source: ./{number}.png}}
"""


def test_a_subject_that_changed_is_published_in_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def build(laboratory: Laboratory) -> None:
        laboratory.commands.done("db", "create")
        (laboratory.commands.registry / "blobs" / "sha256").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(Laboratory, "build", build)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    kept = tmp_path / "images"
    data = tmp_path / "data.csv"
    manifest = tmp_path / "data.yaml"
    for number in range(2):
        (tmp_path / f"{number}.png").write_bytes(b"a picture")
        data.write_text(f"path,label\n{number}.png,0\n")
        manifest.write_text(_MANIFEST.format(number=number))
        commands = overhead.with_images(kept, "")
        commands.done("publish", manifest)
        assert [entry["name"] for entry in commands.done("list", "dataset")["artifacts"]] == ["one"]
