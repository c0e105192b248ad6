"""The digits example as it lies in git: small, complete, and what its manifests say."""

import json
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from benchlock.registry.manifests import Dataset, Model
from benchlock.registry.requests.evaluation_request import read_request
from examples.digits.idx import read_idx, write_idx
from tests.support.registry.authored import read_authored

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"
MODELS = sorted((DIGITS / "models").glob("*.yaml"))
LIMIT = 1_000_000


def model(path: Path) -> Model:
    manifest = read_authored(path.read_bytes(), str(path))
    assert isinstance(manifest, Model)
    return manifest


def dataset() -> Dataset:
    manifest = read_authored((DIGITS / "dataset.yaml").read_bytes(), "dataset.yaml")
    assert isinstance(manifest, Dataset)
    return manifest


def arrays(split: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    return read_idx(DIGITS / "data" / f"{split}-images.idx"), read_idx(DIGITS / "data" / f"{split}-labels.idx")


def test_everything_is_under_a_megabyte() -> None:
    kept = [path for folder in ("data", "models") for path in (DIGITS / folder).rglob("*") if path.is_file()]
    assert kept
    assert sum(path.stat().st_size for path in kept) < LIMIT


@pytest.mark.parametrize("split", ["train", "test"])
def test_sample_counts_and_values_are_true(split: str) -> None:
    pictures, labels = arrays(split)
    samples = msgspec.to_builtins(dataset().splits[split])["samples"]
    assert pictures.shape == (samples, 8, 8)
    assert labels.shape == (samples,)
    assert pictures.max() == 16
    assert set(labels.tolist()) == set(range(10))


def test_the_splits_share_no_picture() -> None:
    train, test = ({picture.tobytes() for picture in arrays(split)[0]} for split in ("train", "test"))
    assert train.isdisjoint(test)


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_every_source_of_a_model_exists(path: Path) -> None:
    manifest = model(path)
    assert manifest.name == path.stem
    for file in manifest.files:
        source = path.parent / str(file.source)
        assert source.is_dir() if file.path.endswith("/") else source.is_file(), source


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_claims_hold_for_what_training_counted(path: Path) -> None:
    counted = json.loads((DIGITS / "models" / "accuracy.json").read_bytes())
    claims = model(path).claims
    assert isinstance(claims, tuple)
    assert {claim.metric for claim in claims} == {"top1", "top5"}
    for claim in claims:
        assert abs(counted[claim.metric] / counted["samples"] - claim.value) <= claim.tolerance
    assert counted["samples"] == len(arrays("test")[1])
    assert counted["top1"] / counted["samples"] >= 0.97


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_every_model_has_a_request(path: Path) -> None:
    request = DIGITS / "requests" / path.name
    document = read_request(request.read_bytes(), str(request)).document
    assert document["name"] == path.stem
    assert document["model"]["name"] == path.stem
    assert document["dataset"]["name"] == dataset().name


def test_the_models_are_one_family_of_all_frameworks() -> None:
    manifests = [model(path) for path in MODELS]
    assert {manifest.family for manifest in manifests} == {"digits-cnn"}
    assert {manifest.framework.name for manifest in manifests} == {"onnxruntime", "litert", "pytorch", "tensorflow"}


@pytest.mark.parametrize("folder", ["data", "models"])
def test_no_file_names_a_folder_of_the_machine_that_wrote_it(folder: str) -> None:
    for path in (DIGITS / folder).rglob("*"):
        if path.is_file():
            assert b"site-packages" not in path.read_bytes(), path


def test_all_that_a_clone_needs_is_in_git() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "examples/digits"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    names = set(tracked.stdout.split())
    for folder in ("data", "models", "requests"):
        for path in (DIGITS / folder).rglob("*"):
            assert path.is_dir() or str(path.relative_to(ROOT)) in names


def test_idx_files_are_read_as_written(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write_idx(tmp_path / "a.idx", array)
    assert (tmp_path / "a.idx").read_bytes()[:16] == bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4])
    assert np.array_equal(read_idx(tmp_path / "a.idx"), array)


def test_an_idx_file_of_other_elements_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.idx").write_bytes(bytes([0, 0, 0x0D, 1, 0, 0, 0, 0]))
    with pytest.raises(ValueError, match="no idx file of bytes"):
        read_idx(tmp_path / "a.idx")
