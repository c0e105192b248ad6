"""The real ONNX Runtime image: with the wheels and the base that users get."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchlock.artifacts.digest import from_hex
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.images.build import Builder, BuildOptions, BuiltImage
from benchlock.evaluator.images.virtual_environment import Environments
from benchlock.registry.manifests import plain
from tests.support.api.commands import Commands


def build(folder: Path, base: Path, store: LocalStore, mask: int) -> BuiltImage:
    folder.mkdir(parents=True)
    before = os.umask(mask)
    try:
        return Builder(folder, folder, store, SILENT).build("onnxruntime==1.31.1", BuildOptions(base=base))
    finally:
        os.umask(before)


def told(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest without what publishing adds and takes."""
    kept = [{key: file[key] for key in ("path", "role", "sha256")} for file in manifest.get("files", ())]
    return manifest | {"files": kept}


@pytest.mark.image
def test_onnxruntime_is_one_image_in_two_folders(tmp_path: Path, base_tarball: Path, built_once: Commands) -> None:
    """The one that a command built and published, in another folder and with another mask."""
    store = LocalStore(built_once.registry / "blobs")  # which has the wheels
    found = build(tmp_path / "two" / "deeper", base_tarball, store, 0o077)
    assert isinstance(found.image.files, tuple)
    assert found.image_id is not None
    for draft, name in ((found.image, "image/onnxruntime-cpu"), (found.framework, "framework/onnxruntime")):
        assert told(plain(draft)) == told(built_once.done("show", name)["manifest"])

    wheels = [(file.path, from_hex(str(file.sha256))) for file in found.image.files if file.path.endswith(".whl")]
    python = Environments(tmp_path / "environments", store, SILENT).materialise(wheels, found.image.platforms[0].python)
    code = "import mlperf_loadgen, numpy, onnxruntime, PIL.Image, safetensors; print(onnxruntime.__version__)"
    done = subprocess.run([python, "-B", "-c", code], check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("1.31.1\n", "")
