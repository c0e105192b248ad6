"""What publishing holds against files beside graphs: wheels, devices, licences; and several manifests."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.inspection.file_inspection import check_license
from benchlock.registry.publishing.drafts import Draft, read_draft
from benchlock.registry.publishing.publication import dry_run_publish_all, publish_all
from tests.registry.publishing.test_publication import DATASET, FRAMEWORK, IMAGE, MODEL, PICTURES, image, pylock
from tests.support.artifacts.memory_store import MemoryStore
from tests.support.registry.graphs import GRAPH

Author = Callable[..., Draft]


def problems_of(author: Author, catalogue: Catalogue, text: str, files: dict[str, bytes]) -> list[str]:
    """What is wrong with a draft, and what is only odd."""
    said: list[str] = []
    try:
        dry_run_publish_all([author(text, files)], catalogue, warn=said.append)
    except InvalidInputError as error:
        return [one.what for one in error.problems or (error,)]
    return [f"warning: {one}" for one in said]


def of_wheels(*wheels: str, device: str = "cpu", version: str = "1.31.1") -> tuple[str, dict[str, bytes]]:
    """An image of these wheels alone, for a device."""
    text, files = image(layers=[], wheel=wheels[0])
    text = text[: text.index("     config:")].rstrip().rstrip(",") + "}\nfiles:\n"
    text = text.replace("device: cpu", f"device: {device}")
    text += "  - {path: pylock.toml, role: wheels, source: pylock.toml}\n"
    text += "".join(f"  - {{path: wheels/{wheel}, role: wheels, source: wheel}}\n" for wheel in wheels)
    return text, files | {"pylock.toml": pylock(*wheels, version=version)}


def onnx(tag: str, distribution: str = "onnxruntime", version: str = "1.31.1") -> str:
    return f"{distribution}-{version}-{tag}.whl"


@pytest.mark.parametrize(
    ("wheels", "device", "version", "words"),
    [
        ((onnx("cp311-cp311-manylinux_2_28_x86_64"),), "cpu", "1.31.1", ""),
        ((onnx("py3-none-any"),), "cpu", "1.31.1", ""),
        ((onnx("cp39-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64"),), "cpu", "1.31.1", ""),
        ((onnx("cp311-cp311-manylinux_2_28_aarch64"),), "cpu", "1.31.1", "is not for linux/amd64 and Python 3.11"),
        ((onnx("cp312-cp312-manylinux_2_28_x86_64"),), "cpu", "1.31.1", "is not for linux/amd64 and Python 3.11"),
        ((onnx("cp311-cp311-win_amd64"),), "cpu", "1.31.1", "is not for linux/amd64 and Python 3.11"),
        (
            (onnx("py3-none-any", version="1.30.0"),),
            "cpu",
            "1.30.0",
            "none of the wheels has the version 1.31.1 of onnxruntime",
        ),
        (
            (onnx("py3-none-any", "onnxruntime_gpu"),),
            "cpu",
            "1.31.1",
            "the device is cpu, but onnxruntime-gpu 1.31.1 is",
        ),
        ((onnx("py3-none-any", version="1.31.1+cu126"),), "cpu", "1.31.1+cu126", "onnxruntime 1.31.1+cu126 is for an"),
        (
            (onnx("py3-none-any", version="1.31.1+cpu"),),
            "cuda12",
            "1.31.1+cpu",
            "onnxruntime 1.31.1+cpu is only for CPUs",
        ),
        ((onnx("py3-none-any", "tensorflow_cpu"),), "cuda12", "1.31.1", "tensorflow-cpu 1.31.1 is only for CPUs"),
        ((onnx("py3-none-any"), onnx("py3-none-any", "nvidia_cublas_cu12")), "cuda12", "1.31.1", ""),
        ((onnx("py3-none-any"), onnx("py3-none-any", "nvidia_cublas_cu12")), "cpu", "1.31.1", "warning: platforms[0]"),
    ],
)
def test_wheels_are_of_the_platform(
    author: Author, catalogue: Catalogue, wheels: tuple[str, ...], device: str, version: str, words: str
) -> None:
    found = problems_of(author, catalogue, *of_wheels(*wheels, device=device, version=version))
    assert len(found) == bool(words), found
    assert not words or words in found[0]


def test_every_wheel_of_the_lock_is_a_file(author: Author, catalogue: Catalogue) -> None:
    text, files = of_wheels(onnx("py3-none-any"))
    lost = pylock(onnx("py3-none-any"), onnx("py3-none-any", "numpy"))
    (found,) = problems_of(author, catalogue, text, files | {"pylock.toml": lost})
    assert "lists wheels/numpy-1.31.1-py3-none-any.whl, which is not in files: the image cannot be locked" in found
    other = pylock(onnx("py3-none-any"), content=b"other")
    (found,) = problems_of(author, catalogue, text, files | {"pylock.toml": other})
    assert "is not the wheel that pylock.toml lists" in found


@pytest.mark.parametrize(
    ("name", "device", "arch", "words"),
    [
        ("example.org/tf:2.21-amd64-cpu", "cpu", "amd64", ""),
        ("example.org/tf:2.21-amd64-gpu", "cpu", "amd64", "that of an image for accelerators"),
        ("example.org/tf:2.21-amd64-cpu", "cuda12", "amd64", "that of an image for CPUs"),
        ("example.org/tf:2.21-arm64-cpu", "cpu", "amd64", "that of an image for arm64"),
        ("example.org/tf", "cuda12", "arm64", ""),
    ],
)
def test_a_finished_image_is_called_after_its_platform(
    author: Author, catalogue: Catalogue, name: str, device: str, arch: str, words: str
) -> None:
    platform = f'{{os: linux, arch: {arch}, device: {device}, python: "3.11", reference: "{name}@sha256:{"0" * 64}"}}'
    text = IMAGE[: IMAGE.index("  - {{os")].replace("{{", "{").replace("}}", "}") + f"  - {platform}\n"
    found = problems_of(author, catalogue, text, {})
    assert len(found) == bool(words), found
    assert not words or words in found[0]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("MIT", ""), ("Apache-2.0 WITH LLVM-exception", ""), ("MIT OR Apache-2.0", ""), ("various", ""),
        ("proprietary", ""), ("LicenseRef-OpenMDW", ""), ("apache-2.0", "is 'Apache-2.0'"),
        ("Apache 2", "is not an SPDX expression"), ("none", "refused"), ("TODO", "refused"), (" ", "refused"),
    ],
)  # fmt: skip
def test_a_licence_is_one(text: str, outcome: str) -> None:
    if outcome == "refused":
        with pytest.raises(InvalidInputError, match="invalid license"):
            check_license(text)
    else:
        assert outcome in (check_license(text) or "")
        assert bool(outcome) == bool(check_license(text))


@pytest.mark.parametrize("paths", [("a.bin", "A.bin"), ("caf\u00e9.bin", "cafe\u0301.bin"), ("x/a.bin", "X/b.bin")])
def test_files_whose_names_collide_are_refused(author: Author, catalogue: Catalogue, paths: tuple[str, str]) -> None:
    text = MODEL + "".join(f"  - {{path: {path}, role: weights, source: w}}\n" for path in paths)
    (found,) = problems_of(author, catalogue, text, {"net.onnx": GRAPH, "w": b"w"})
    assert "are the same name on some file systems" in found


def test_nothing_is_published_where_one_of_several_is_wrong(
    author: Author, store: LocalStore, catalogue: Catalogue, tmp_path: Path
) -> None:
    good, bad = author(FRAMEWORK), author(MODEL)
    absent = replace(bad, path=tmp_path / "elsewhere" / "model.yaml")
    taken = replace(good, manifest=author(FRAMEWORK.replace("license: MIT", "license: ISC")).manifest)
    for some, words in (
        ([good, bad], ["net.onnx not found"]),
        ([good, absent, bad], ["net.onnx not found"] * 2),
        ([good, taken], ["also publishes framework/onnxruntime@1.31.1"]),
    ):
        with pytest.raises(BenchlockError) as caught:
            publish_all(some, store, catalogue)
        told = [one.what for one in caught.value.problems or (caught.value,)]
        assert len(told) == len(words)
        assert all(word in one for word, one in zip(words, told, strict=True))
        assert catalogue.list() == ()
    assert [one.changed for one in publish_all([good, good], store, catalogue)] == [True, False]


def test_wrong_bytes_decide_before_everything_else(author: Author, catalogue: Catalogue) -> None:
    text = DATASET.replace("source: labels.txt", f'source: labels.txt, sha256: "{"0" * 64}"').replace("3}}", "4}}")
    with pytest.raises(IntegrityError) as caught:
        publish_all([author(text, PICTURES)], MemoryStore(), catalogue)
    assert [type(one).__name__ for one in caught.value.problems] == ["IntegrityError", "InvalidInputError"]


def test_keys_that_do_not_fit_and_files_that_are_missing_are_told_together(tmp_path: Path) -> None:
    text = MODEL.replace("task: image-classification", "taks: x").replace("dtype: float32", "dtype: float").replace(
        "format: onnx", "format: onxn"
    )  # fmt: skip
    with pytest.raises(InvalidInputError) as caught:
        read_draft(text, "manifest.yaml", tmp_path / "manifest.yaml")
    told = [str(one.where) for one in caught.value.problems]
    assert told == [
        "taks (manifest.yaml, line 6)", "format (manifest.yaml, line 8)", "inputs[0].dtype (manifest.yaml, line 12)",
        "inputs[0].steps[1].cast.dtype (manifest.yaml, line 15)", "outputs[0].dtype (manifest.yaml, line 17)",
        "files[0].source (manifest.yaml)",
    ]  # fmt: skip


def test_a_claim_on_a_dataset_that_is_not_published_is_told(author: Author, catalogue: Catalogue) -> None:
    on = "{metric: top1, value: 1, tolerance: 0, dataset: {name: picturs, version: '*', split: test}}"
    model = f"{MODEL}claims:\n  - {on}\n"
    (told,) = problems_of(author, catalogue, model, {"net.onnx": GRAPH})
    assert told.startswith(
        "warning: the dataset 'picturs' of a claim is not published yet, so the claim is not judged; "
    )
    publish_all([author(DATASET, PICTURES)], MemoryStore(), catalogue)
    (told,) = problems_of(author, catalogue, model, {"net.onnx": GRAPH})
    assert told.endswith("did you mean dataset/pictures?")
    assert problems_of(author, catalogue, model.replace("picturs", "pictures"), {"net.onnx": GRAPH}) == []
