"""Golden files at publishing: samples of every input, tensors that fit the manifest, tolerances for them."""

import io
from collections.abc import Callable

import numpy as np
import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.lock.lock_creation import is_labelled
from benchlock.registry.manifests import Dataset
from benchlock.registry.publishing.drafts import Draft
from benchlock.registry.publishing.publication import dry_run_publish_all, publish
from tests.registry.publishing.test_publication import DATASET, MODEL, PICTURES
from tests.support.registry.digits import DIGITS
from tests.support.registry.graphs import GRAPH

Author = Callable[..., Draft]

TOLERANCE = "tolerance: {absolute: 0, relative: 0}"
WITH_GOLDEN = (
    MODEL.replace("    layout: NHWC\n", f"    layout: NHWC\n    {TOLERANCE}\n").replace(
        "label_offset: 0}", f"label_offset: 0, {TOLERANCE}}}"
    )
    + "  - {path: golden.npz, role: golden, source: ./golden.npz}\n"
)
ARRAYS: dict[str, object] = {
    "raw/x/0": np.zeros(100, np.uint8),
    "raw/x/1": np.zeros(70, np.uint8),
    "input/x": np.zeros((2, 8, 8, 1), np.float32),
    "output/y": np.zeros((2, 2), np.float32),
}


def npz(**arrays: object) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **{name: np.asarray(value) for name, value in arrays.items()})  # type: ignore[arg-type]
    return stream.getvalue()


def problems(author: Author, catalogue: Catalogue, text: str, content: bytes) -> list[str]:
    """Each problem, with the place that it names."""
    try:
        dry_run_publish_all([author(text, {"net.onnx": GRAPH, "golden.npz": content})], catalogue)
    except InvalidInputError as error:
        return [f"{str(one.where).partition(' (')[0]}: {one.what}" for one in error.problems or (error,)]
    return []


def test_golden_tensors_that_fit_are_published(author: Author, catalogue: Catalogue) -> None:
    assert problems(author, catalogue, WITH_GOLDEN, npz(**ARRAYS)) == []
    without = {name: value for name, value in ARRAYS.items() if not name.startswith("input/")}
    assert problems(author, catalogue, WITH_GOLDEN, npz(**without)) == []


def test_golden_tensors_beside_a_graph_are_no_graph(author: Author, catalogue: Catalogue) -> None:
    models = DIGITS / "models"
    text = (models / "digits-tflite.yaml").read_text().replace("../data/", "./")
    text = text.replace("files:\n", "files:\n  - {path: golden.npz, role: golden, source: ./golden.npz}\n")
    files = {
        "digits.tflite": (models / "digits.tflite").read_bytes(),
        "labels.txt": (DIGITS / "data" / "labels.txt").read_bytes(),
        "golden.npz": npz(**{
            "raw/serving_default_input:0/0": np.zeros(100, np.uint8),
            "output/StatefulPartitionedCall:0": np.zeros((1, 10), np.float32),
        }),
    }  # fmt: skip
    dry_run_publish_all([author(text, files)], catalogue)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"raw/x/1": None}, "input/x of golden.npz has the shape [2, 8, 8, 1], but there are 1 samples"),
        ({"raw/x/0": None, "raw/x/1": None}, "golden.npz has 0 samples of the input x, raw/x/0 and so on"),
        ({"input/x": None, "output/y": None}, "golden.npz has no expected values"),
        (
            {"input/x": np.zeros((2, 8, 8, 1))},
            "input/x of golden.npz has the dtype float64, but the manifest states float32",
        ),
        (
            {"input/x": np.zeros((2, 1, 8, 8), np.float32)},
            "has [1, 8, 8] per sample, but the manifest states [8, 8, 1]",
        ),
        ({"output/y": np.zeros((3, 2), np.float32)}, "output/y of golden.npz has the shape [3, 2]"),
        ({"output/z": np.zeros(2)}, "golden.npz has 'output/z', which is not a sample, input or output of the model"),
        ({"raw/x/3": np.zeros(1)}, "golden.npz has 'raw/x/3', which is not a sample"),
        ({"input/x": np.asarray([{}, {}])}, "executes code when it is read"),
    ],
)
def test_what_does_not_fit_is_refused(
    author: Author, catalogue: Catalogue, changes: dict[str, object], words: str
) -> None:
    arrays = {name: value for name, value in (ARRAYS | changes).items() if value is not None}
    found = problems(author, catalogue, WITH_GOLDEN, npz(**arrays))
    assert any(words in one for one in found), found


def test_what_is_expected_needs_a_tolerance(author: Author, catalogue: Catalogue) -> None:
    found = problems(author, catalogue, WITH_GOLDEN.replace(f", {TOLERANCE}", ""), npz(**ARRAYS))
    (one,) = found
    assert one.startswith("outputs[0].tolerance: the output y has golden tensors, but no tolerance")


def test_what_is_no_npz_file_is_refused(author: Author, catalogue: Catalogue) -> None:
    assert "golden.npz is not a valid npz file" in problems(author, catalogue, WITH_GOLDEN, b"nothing")[0]


def test_a_model_has_one_golden_file(author: Author, catalogue: Catalogue) -> None:
    text = WITH_GOLDEN + "  - {path: more.npz, role: golden, source: ./golden.npz}\n"
    assert any("only one golden file" in one for one in problems(author, catalogue, text, npz(**ARRAYS)))


@pytest.mark.parametrize(
    ("index", "labelled"),
    [(PICTURES["index.csv"], True), (b"path\nimages/a.png\nimages/b.png\nimages/deep/c.png\n", False)],
)
def test_answers_are_judged_where_a_split_has_labels(
    author: Author, store: LocalStore, catalogue: Catalogue, index: bytes, *, labelled: bool
) -> None:
    published = publish(author(DATASET, PICTURES | {"index.csv": index}), store, catalogue)
    dataset = catalogue.manifest(published.reference)
    assert isinstance(dataset, Dataset)
    assert is_labelled(dataset, "test", "top1", store) == labelled
    assert not is_labelled(dataset, "test", "map", store)
