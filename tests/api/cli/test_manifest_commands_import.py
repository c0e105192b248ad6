"""``benchlock import mlmodelscope`` as an author uses it: files in, native manifests and lists of findings out."""

import re
import subprocess
from pathlib import Path

import pytest
from onnx import TensorProto

from tests.support.api.commands import BENCHLOCK, Commands
from tests.support.api.warm import Warm
from tests.support.registry.graphs import Ports, graph

CASES = Path(__file__).resolve().parents[2] / "cases" / "mlmodelscope"


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Warm(tmp_path / "registry")


@pytest.fixture
def originals(tmp_path: Path) -> Path:
    """Three manifests, two of one name, among files that are none."""
    folder = tmp_path / "originals"
    (folder / "inner").mkdir(parents=True)
    for name, target in (
        ("classification.yml", "b.yml"),
        ("paper-whole.yml", "inner/egret.yaml"),
        ("paper-whole.yml", "inner/egret.YML"),
        ("broken-tab.yml", "broken.yml"),
        ("not-a-manifest.yml", "travis.yml"),
    ):
        (folder / target).write_bytes((CASES / name).read_bytes())
    (folder / "latin.yml").write_bytes("name: Sch\xf6n\n".encode("latin-1"))
    (folder / "large.yml").write_bytes(b"#" * (1 << 20) + b"\n")
    (folder / "readme.txt").write_text("no YAML")
    return folder


def test_a_file_is_written_beside_itself_and_never_over_another(commands: Commands, originals: Path) -> None:
    document = commands.done("import", "mlmodelscope", originals / "b.yml")
    target = originals / "b.benchlock.yaml"
    (file,) = document["files"]
    assert (file["source"], file["output"], file["name"]) == (
        str(originals / "b.yml"),
        str(target),
        "kestrel_v1_0.5_96",
    )
    assert file["todos"] == sum(one["todo"] for one in file["findings"]) == target.read_text().count("# TODO")
    assert {"path", "code", "what", "done", "todo"} == set(file["findings"][0])

    target.write_text("my work")
    error = commands.error(2, "import", "mlmodelscope", originals / "b.yml")
    assert error["message"] == f"{target} already exists; nothing was written"
    assert "--force" in error["next"]
    assert target.read_text() == "my work"
    commands.done("import", "mlmodelscope", originals / "b.yml", "--force")
    assert target.read_text().startswith("# From the MLModelScope manifest b.yml.\n")


def test_a_folder_goes_on_past_what_is_broken(commands: Commands, originals: Path, tmp_path: Path) -> None:
    out = tmp_path / "native"
    document = commands.done("import", "mlmodelscope", originals, "-o", out)
    assert document["counts"] == {"written": 3, "not a manifest": 1, "unreadable": 3}
    outcomes = {Path(file["source"]).name: file["outcome"] for file in document["files"]}
    assert outcomes == {
        "b.yml": "written", "broken.yml": "unreadable", "egret.YML": "written", "egret.yaml": "written",
        "large.yml": "unreadable", "latin.yml": "unreadable", "travis.yml": "not a manifest",
    }  # fmt: skip
    errors = {Path(file["source"]).name: file["error"] for file in document["files"] if "error" in file}
    assert errors["broken.yml"]["where"] == "broken.yml, line 4"
    assert errors["latin.yml"]["message"] == "the text is not UTF-8"
    assert sorted(path.name for path in out.iterdir()) == ["egret-2.yaml", "egret.yaml", "kestrel_v1_0.5_96.yaml"]
    clash = next(file for file in document["files"] if file["source"].endswith("egret.yaml"))
    assert "egret is also the model of inner/egret.YML" in next(
        one["what"] for one in clash["findings"] if one["code"] == "same-name"
    )
    assert commands.error(2, "import", "mlmodelscope", originals, "-o", out)["message"].endswith(
        "and 2 others; nothing was written"
    )


def test_what_was_written_beside_its_original_is_not_read_again(commands: Commands, originals: Path) -> None:
    first = commands.done("import", "mlmodelscope", originals)
    again = commands.done("import", "mlmodelscope", originals, "--force")
    assert again == first
    assert (originals / "inner" / "egret-2.benchlock.yaml").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("broken.yml", "not YAML: found character '\\t' that cannot start any token"),
        ("travis.yml", "this is not a model manifest of MLModelScope"),
        ("missing.yml", "missing.yml: No such file or directory"),
    ],
)
def test_one_file_that_is_no_manifest_is_refused(commands: Commands, originals: Path, name: str, message: str) -> None:
    error = commands.error(2, "import", "mlmodelscope", originals / name)
    assert message in error["message"]
    assert error["next"]


def test_a_folder_without_a_manifest_is_refused(commands: Commands, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    error = commands.error(2, "import", "mlmodelscope", tmp_path / "empty")
    assert error["message"].startswith("none of the 0 YAML files")
    (tmp_path / "empty" / "travis.yml").write_text("language: go")
    error = commands.error(2, "import", "mlmodelscope", tmp_path / "empty")
    assert "this is not a model manifest of MLModelScope (travis.yml)" in error["next"]


def test_a_person_reads_what_is_open_and_how_much(originals: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [BENCHLOCK, "import", "mlmodelscope", originals, "-o", tmp_path / "native"],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert f"{originals}/b.yml -> {tmp_path}/native/kestrel_v1_0.5_96.yaml" in lines
    assert "  TODO version: 1.0 is not a SemVer version (a number); write 1.0.0 if that is meant" in lines
    assert any(line.startswith("       container.amd64.gpu: the gpu image is") for line in lines)
    assert re.fullmatch(
        r"3 written, 3 unreadable, 1 not a manifest; \d+ TODO lines to complete before publishing", lines[-1]
    )


FINISHED = {
    "confirm": "",
    "exif": "exif: ignore",
    "resize": "antialias: true",
    "label_offset": "label_offset: 0",
    "sha256": "",
}
"""What an author puts in place of each TODO line of one case."""


def test_publishing_points_at_every_todo_until_the_last_is_done(commands: Commands, tmp_path: Path) -> None:
    commands.done("import", "mlmodelscope", CASES / "paper-whole.yml", "-o", tmp_path)
    manifest = tmp_path / "egret.yaml"
    ports: Ports = {"x": (TensorProto.FLOAT, ["n", 3, 64, 48])}
    (tmp_path / "egret.onnx").write_bytes(graph(ports))
    manifest.write_text(manifest.read_text().replace("https://example.org/models/", "./"))
    subjects = re.findall(r"# TODO (\w+):", manifest.read_text())
    assert set(subjects) == set(FINISHED)
    for done, subject in enumerate(subjects):
        error = commands.error(2, "publish", manifest)
        line = int(error["where"].rpartition(" ")[2])
        assert error["message"].startswith(f"not finished: TODO {subject}: ")
        told = [one["message"] for one in error.get("problems", [error])]
        assert sum(message.startswith("not finished: TODO ") for message in told) == len(subjects) - done
        lines = manifest.read_text().splitlines()
        indent = lines[line - 1].partition("#")[0]
        lines[line - 1] = f"{indent}{FINISHED[subject]}".rstrip()
        manifest.write_text("\n".join(lines) + "\n")
    (published,) = commands.done("publish", manifest)["published"]
    assert (published["kind"], published["name"], published["version"]) == ("model", "egret", "2.0.0")
