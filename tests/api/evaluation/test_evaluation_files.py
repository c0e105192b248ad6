"""The files of an evaluation: generated from a model and a dataset, completed, and used again."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import huggingface_hub
import pytest
from msgspec import UNSET
from PIL import Image

from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.evaluation.evaluation_files import EvaluationFiles, FileCollector
from benchlock.api.evaluation.scaffold_completion import AnswerSource, OpenValue
from benchlock.api.local.local_registry import open_registry
from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.digest import from_hex
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnknownNameError
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.publishing.publication import publish_all
from benchlock.registry.text.collected_problems import Finding
from tests.support.registry.digits import DIGITS
from tests.support.servers.hub import HubServer, serving_hub

ANSWERS = {
    "model.task": "image-classification",
    "model.framework.version": ">=1.20 <2",
    "model.inputs[0].type": "image",
    "model.inputs[0].layout": "NCHW",
    "model.inputs[0].steps": [
        {"decode": {"color": "L", "exif": "ignore"}},
        {"cast": {"dtype": "float32"}},
        {"transpose": {"layout": "NCHW"}},
    ],
    "model.outputs[0].type": "class-scores",
    "model.outputs[0].label_offset": 0,
}


def accept(values: Sequence[OpenValue]) -> Mapping[str, Any]:
    """Accept all defaults; what has none fails the test."""
    assert [value.path for value in values if value.default is UNSET] == []
    return {value.path: value.default for value in values}


def no_registry() -> NoReturn:
    raise AssertionError("no published name was given")


@pytest.fixture
def hub() -> Iterator[HubServer]:
    """A Hub with the model in a repository."""
    with serving_hub() as running:
        running.repo.lfs = frozenset({"digits.onnx"})
        running.repo.commits["c" * 40] = {"digits.onnx": (DIGITS / "models" / "digits.onnx").read_bytes()}
        running.repo.revisions["main"] = "c" * 40
        yield running
        huggingface_hub.close_session()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, and a folder with a dataset."""
    shutil.copy(DIGITS / "models" / "digits.onnx", tmp_path)
    shutil.copytree(DIGITS / "data", tmp_path / "data")
    return tmp_path


def collector(
    values: Mapping[str, Any] = ANSWERS,
    ask: Callable[[Sequence[OpenValue]], Mapping[str, Any]] = accept,
    directory: Path | None = None,
    shown: list[tuple[str, Sequence[Finding]]] | None = None,
) -> FileCollector:
    show = [] if shown is None else shown
    source = AnswerSource(ask, lambda heading, findings: show.append((heading, findings)), values)
    return FileCollector(no_registry, source, directory)


def write(files: EvaluationFiles) -> None:
    for generated in files.generated:
        generated.path.write_text(generated.text)


def test_manifests_and_request_are_generated_beside_the_model_and_nothing_is_written(folder: Path) -> None:
    before, shown = sorted(folder.rglob("*")), list[tuple[str, Sequence[Finding]]]()
    files = collector(shown=shown).collect(str(folder / "digits.onnx"), str(folder / "data" / "test-images.idx"))
    names = ["digits.onnx.model.yaml", "test-images.idx.dataset.yaml", "digits-on-test-images.yaml"]
    assert [generated.path for generated in files.generated] == [folder / name for name in names]
    assert files.request_path == folder / "digits-on-test-images.yaml"
    assert [draft.problems for draft in files.drafts] == [(), ()]
    assert "TODO " not in "".join(generated.text for generated in files.generated)
    assert [heading.partition(":")[0] for heading, _ in shown] == ["model", "dataset", "request"]
    assert sorted(folder.rglob("*")) == before


def test_what_was_written_is_used_again_also_after_an_edit(folder: Path) -> None:
    words = (str(folder / "digits.onnx"), str(folder / "data" / "test-images.idx"))
    write(collector().collect(*words))
    manifest, request = folder / "digits.onnx.model.yaml", folder / "digits-on-test-images.yaml"
    manifest.write_text(manifest.read_text().replace("version: 1.0.0", "version: 1.1.0"))
    request.write_text(request.read_text().replace("seed: 7", "seed: 8"))
    files = collector({}).collect(*words)
    assert files.generated == ()
    assert (files.model.manifest.version, files.request.content.seed) == ("1.1.0", 8)


def test_an_answer_that_contradicts_an_existing_file_is_refused(folder: Path) -> None:
    words = (str(folder / "digits.onnx"), str(folder / "data" / "test-images.idx"))
    write(collector().collect(*words))
    assert collector().collect(*words).generated == ()
    for path, value in {"model.task": "tensor", "dataset.license": "MIT", "request.seed": 8}.items():
        with pytest.raises(InvalidInputError, match="existing files are not overwritten"):
            collector({path: value}).collect(*words)


def test_values_without_a_default_are_asked_for_and_answers_may_raise_others(folder: Path) -> None:
    given = {path: value for path, value in ANSWERS.items() if not path.startswith("model.outputs")}
    rounds = list[list[str]]()

    def ask(values: Sequence[OpenValue]) -> Mapping[str, Any]:
        rounds.append([value.path for value in values if value.default is UNSET])
        return {value.path: ANSWERS.get(value.path, value.default) for value in values}

    collector(given, ask).collect(str(folder / "digits.onnx"), str(folder / "data" / "test-images.idx"))
    assert rounds == [["model.outputs[0].type"], ["model.outputs[0].label_offset"]]


def test_a_label_offset_without_a_score_for_a_label_is_asked_for_again(folder: Path) -> None:
    words = (str(folder / "digits.onnx"), str(folder / "data" / "test-images.idx"))
    values = ANSWERS | {"model.outputs[0].label_offset": 1}
    with pytest.raises(InvalidInputError, match="label 9 of the dataset is class index 10, but the output has 10"):
        collector(values).collect(*words)
    revised = list[tuple[str, Any]]()

    def revise(problems: Sequence[BenchlockError], questions: Sequence[OpenValue]) -> Mapping[str, Any]:
        assert [problem.next_step for problem in problems] == ["write label_offset: 0"]
        revised.extend((question.path, question.default) for question in questions)
        return {"model.outputs[0].label_offset": 0}

    source = AnswerSource(accept, lambda *_: None, values, revise=revise)
    files = FileCollector(no_registry, source).collect(*words)
    assert revised == [("model.outputs[0].label_offset", 1)]
    assert "label_offset: 0" in files.generated[0].text


def test_an_answer_is_checked_alone(folder: Path) -> None:
    wrong = {
        "model.task": "guessing",
        "model.outputs[0].type": 7,
        "model.inputs[0].steps": [{"decode": {"color": "pink", "exif": "x"}}, {"resize": {"size": 32}}],
    }
    problems = dict[str, list[str]]()

    def ask(values: Sequence[OpenValue]) -> Mapping[str, Any]:
        for value in values:
            if value.path in wrong:
                assert list(value.check(ANSWERS[value.path])) == []
                problems[value.path] = [str(problem.where) for problem in value.check(wrong[value.path])]
        return {value.path: ANSWERS.get(value.path, value.default) for value in values}

    collector({"model.inputs[0].type": "image"}, ask).collect(
        str(folder / "digits.onnx"), str(folder / "data" / "test-images.idx")
    )
    assert problems.keys() == wrong.keys()
    assert all(problems.values()), problems
    places = [where.partition(" (")[0] for where in problems["model.inputs[0].steps"]]
    assert {"inputs[0].steps[0].decode.exif", "inputs[0].steps[1].resize.size"} <= set(places), places


def test_all_problems_of_answers_are_reported_before_anything_is_written(folder: Path) -> None:
    values = ANSWERS | {"model.task": "guessing", "model.framework.version": "new"}
    with pytest.raises(InvalidInputError) as raised:
        collector(values).collect(str(folder / "digits.onnx"), str(folder / "data" / "test-images.idx"))
    assert len(raised.value.problems) == 2
    assert all("digits.onnx.model.yaml, not written" in (problem.where or "") for problem in raised.value.problems)


def test_manifests_are_taken_as_they_are_and_a_split_is_asked_for(folder: Path) -> None:
    words = (str(DIGITS / "models" / "digits-onnx.yaml"), str(DIGITS / "dataset.yaml"))
    files = collector({"request.dataset.split": "train"}, directory=folder / "new").collect(*words)
    assert [generated.path for generated in files.generated] == [folder / "new" / "digits-onnx-on-digits.yaml"]
    assert files.request.of_model.dataset.split == "train"
    with pytest.raises(AssertionError, match="request"):
        collector({}, directory=folder / "new").collect(*words)


def test_files_of_the_model_are_added_with_sources_beside_its_manifest(folder: Path) -> None:
    labels = {"path": "labels.txt", "role": "labels", "source": str(folder / "data" / "labels.txt")}
    values = ANSWERS | {"model.outputs[0].labels": "labels.txt"}
    source = AnswerSource(accept, lambda *_: None, values, (labels,))
    files = FileCollector(no_registry, source, None).collect(
        str(folder / "digits.onnx"), str(folder / "data" / "test-images.idx")
    )
    assert "source: data/labels.txt" in files.generated[0].text
    assert files.drafts[0].problems == ()


def test_a_published_name_needs_no_file(folder: Path) -> None:
    registry = EmbeddedRegistry(open_registry(str(folder / "registry"), print))
    manifests = (DIGITS / "models" / "digits-onnx.yaml", DIGITS / "dataset.yaml")
    files = collector({"request.dataset.split": "test"}, directory=folder).collect(*map(str, manifests))
    publish_all(files.drafts, registry.store, registry.catalogue)
    source = AnswerSource(accept, lambda *_: None, {"request.dataset.split": "test"})
    published = FileCollector(lambda: registry, source, folder).collect("digits-onnx", "digits@>=1 <2")
    assert published.drafts == ()
    assert [published.request.document[kind]["version"] for kind in ("model", "dataset")] == ["^1.0.0", ">=1 <2"]
    with pytest.raises(UnknownNameError):
        FileCollector(lambda: registry, source, folder).collect("digits-onnx@^2", "digits")
    write(published)
    assert FileCollector(lambda: registry, source, folder).collect("digits-onnx", "digits").generated == ()
    with pytest.raises(InvalidInputError, match=r"requests digits@>=1 <2, not @\^1"):
        FileCollector(lambda: registry, source, folder).collect("digits-onnx", "digits@^1")
    with pytest.raises(UnknownNameError, match="unknown model 'nothing', and no file or folder has this name"):
        FileCollector(lambda: registry, source, folder).collect("nothing", "digits")
    refusing = AnswerSource(accept, lambda *_: None, {"model.task": "regression"})
    with pytest.raises(InvalidInputError, match="never changes"):
        FileCollector(lambda: registry, refusing, folder).collect("digits-onnx", "digits")


def test_what_cannot_be_evaluated_is_refused_with_the_next_step(folder: Path) -> None:
    model, data = str(folder / "digits.onnx"), str(folder / "data" / "test-images.idx")
    shutil.copy(folder / "digits.onnx", folder / "data" / "digits.onnx")
    write(collector().collect(model, data))
    for words, message in {
        ("no such file", data): "no such file not found",
        ("", data): "the model is an empty text",
        (model, ""): "the dataset is an empty text",
        (str(folder / "data"), model): "is not a model in a known format",
        (str(DIGITS / "dataset.yaml"), data): "is the manifest of a dataset, not of a model",
        (str(folder / "data" / "digits.onnx"), str(folder / "data")): "would become a part of the dataset",
    }.items():
        with pytest.raises(InvalidInputError, match=message) as raised:
            collector().collect(*words)
        assert raised.value.next_step
    with pytest.raises(InvalidInputError, match="describes another file"):
        collector(directory=folder).collect(str(folder / "data" / "digits.onnx"), data)


def test_an_existing_request_of_other_artifacts_is_refused(folder: Path) -> None:
    words = (str(folder / "digits.onnx"), str(folder / "data" / "test-images.idx"))
    write(collector().collect(*words))
    request = folder / "digits-on-test-images.yaml"
    request.write_text(request.read_text().replace("name: test-images", "name: others"))
    with pytest.raises(InvalidInputError, match="requests digits on others, not digits on test-images"):
        collector().collect(*words)


def test_a_request_does_not_replace_a_manifest_of_the_same_evaluation(folder: Path) -> None:
    words = (str(folder / "digits.onnx"), str(folder / "data" / "test-images.idx"))
    with pytest.raises(InvalidInputError, match="would be both a manifest and the request"):
        collector(ANSWERS | {"request.name": "digits.onnx.model"}).collect(*words)


def test_a_request_is_generated_for_names_and_manifests_alone(folder: Path) -> None:
    with pytest.raises(InvalidInputError, match="has no manifest") as raised:
        collector({}).scaffold_request(str(folder / "digits.onnx"), None)
    assert "benchlock init model" in str(raised.value.next_step)
    scaffold = collector({}).scaffold_request(str(DIGITS / "models" / "digits-onnx.yaml"), str(DIGITS / "dataset.yaml"))
    assert [finding.path for finding in scaffold.findings if finding.todo] == ["dataset.split"]


def test_a_model_of_the_hub_is_pinned_and_its_file_kept(
    folder: Path, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.web.origin)
    registry = EmbeddedRegistry(open_registry(str(folder / "registry"), print))
    source = AnswerSource(accept, lambda *_: None, ANSWERS)
    hub_collector = FileCollector(lambda: registry, source, folder / "new")
    words = ("hf:org/net@main", str(folder / "data" / "test-images.idx"))
    files = hub_collector.collect(*words)
    assert files.generated[0].path.name == "net.model.yaml"
    (file,) = (file for file in files.model.manifest.files if file.role == "graph")
    assert file.source == f"hf://org/net@{'c' * 40}/digits.onnx"
    assert registry.store.exists(from_hex(str(file.sha256)))
    (folder / "new").mkdir()
    write(files)
    assert hub_collector.collect(*words).generated == ()
    with pytest.raises(InvalidInputError, match="describes another file"):
        hub_collector.collect("hf:other/net@main", words[1])


def test_folders_of_classes_become_a_dataset_with_the_files_that_it_refers_to(folder: Path) -> None:
    for name in ("cat", "dog"):
        (folder / "photos" / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(folder / "photos" / name / "1.png")
    words = (str(folder / "digits.onnx"), str(folder / "photos"))
    files = collector().collect(*words)
    names = [generated.path.name for generated in files.generated]
    assert (names[0], names[1], names[-1]) == (
        "digits.onnx.model.yaml",
        "photos.dataset.yaml",
        "digits-on-photos.yaml",
    )
    write(files)
    publish_all(files.drafts, *empty_registry(folder))
    shown = list[tuple[str, Sequence[Finding]]]()
    assert collector(shown=shown).collect(*words).generated == ()
    assert not any(heading.startswith("warning") for heading, _ in shown)
    for name in ("2.png", "3.png"):
        shutil.copy(folder / "photos" / "cat" / "1.png", folder / "photos" / "dog" / name)
    assert collector(shown=shown).collect(*words).generated == ()
    (warning,) = (heading for heading, _ in shown if heading.startswith("warning"))
    assert "2 files are not in the index and not evaluated, first photos/dog/2.png" in warning
    assert "delete photos.dataset.yaml, photos.all.csv, photos.labels.txt" in warning
    (folder / "photos.dataset.yaml").unlink()
    labels = next(path for path in folder.glob("photos.*") if path.name.endswith("labels.txt"))
    labels.write_text("others\n")
    with pytest.raises(InvalidInputError, match="exists with another content"):
        collector().collect(*words)


@pytest.mark.parametrize(
    ("classes", "given", "offered"),
    [
        (10, {}, {"task": "image-classification", "inputs[0].type": "image", "outputs[0].type": "class-scores"}),
        (10, {"model.task": "image-classification"}, {"inputs[0].type": "image", "outputs[0].type": "class-scores"}),
        (10, {"model.task": "tensor"}, {}),
        (9, {}, {}),
    ],
)
def test_a_model_with_an_output_for_each_class_of_pictures_is_offered_as_a_classifier(
    folder: Path, classes: int, given: Mapping[str, Any], offered: Mapping[str, str]
) -> None:
    """Also for a dataset whose manifest exists; what prepares the pictures stays a question."""
    for label in range(classes):
        (folder / "photos" / str(label)).mkdir(parents=True)
        Image.new("L", (8, 8)).save(folder / "photos" / str(label) / "1.png")
    words = (str(folder / "digits.onnx"), str(folder / "photos"))
    for _ in range(2):
        first_values = list[OpenValue]()

        def ask(values: Sequence[OpenValue], first_values: list[OpenValue] = first_values) -> Mapping[str, Any]:
            first_values += [] if first_values else values
            return {value.path: ANSWERS.get(value.path, value.default) for value in values}

        files = collector(given, ask).collect(*words)
        defaults = {value.finding.path: value for value in first_values if value.path.startswith("model.")}
        paths = ("task", "inputs[0].type", "outputs[0].type")
        open_paths = [path for path in paths if f"model.{path}" not in given]
        assert {path: defaults[path].default for path in open_paths if defaults[path].default is not UNSET} == offered
        assert all(f"pictures of {classes} classes" in defaults[path].finding.what for path in offered)
        assert defaults["inputs[0].steps"].default is UNSET
        write(EvaluationFiles(files.model, files.dataset, files.request, files.request_path, files.dataset.generated))


def empty_registry(folder: Path) -> tuple[FileStore, Catalogue]:
    registry = EmbeddedRegistry(open_registry(str(folder / "registry"), print))
    return registry.store, registry.catalogue
