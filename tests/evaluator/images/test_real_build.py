"""The real ONNX Runtime image: with the wheels and the base that users get."""

import os
import subprocess
from pathlib import Path

import pytest

from artifacts.digest import from_hex
from artifacts.local import LocalStore
from artifacts.progress import SILENT
from evaluator.images.build import Builder, BuildOptions, BuiltImage
from evaluator.images.environment import Environments


def build(folder: Path, base: Path, store: LocalStore, mask: int) -> BuiltImage:
    folder.mkdir(parents=True)
    before = os.umask(mask)
    try:
        return Builder(folder, folder, store, SILENT).build("onnxruntime==1.31.1", BuildOptions(base=base))
    finally:
        os.umask(before)


@pytest.mark.image
def test_onnxruntime_is_one_image_in_two_folders(tmp_path: Path, base_tarball: Path, store: LocalStore) -> None:
    one = build(tmp_path / "one", base_tarball, store, 0o022)
    assert isinstance(one.image.files, tuple)
    for file in one.image.files:
        store.put_file(one.folder / file.path)  # the second build finds the wheels here
    two = build(tmp_path / "two" / "deeper", base_tarball, store, 0o077)
    assert one.image == two.image
    assert one.image_id == two.image_id is not None
    assert one.framework == two.framework

    wheels = [(file.path, from_hex(str(file.sha256))) for file in one.image.files if file.path.endswith(".whl")]
    python = Environments(tmp_path / "environments", store, SILENT).materialise(wheels, one.image.platforms[0].python)
    code = "import mlperf_loadgen, numpy, onnxruntime, PIL.Image, safetensors; print(onnxruntime.__version__)"
    done = subprocess.run([python, "-B", "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("1.31.1\n", "")
