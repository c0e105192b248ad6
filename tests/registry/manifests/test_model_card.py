"""A model's card is kept, bounded, and shown as plain text whatever is in it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from benchlock.api.cli.main import run
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.manifests.model_card import LARGEST, SHOWN, card_path, read_card
from benchlock.registry.publishing.publication import Draft, publish
from tests.support.api.commands import Commands
from tests.support.registry.digits import DIGITS
from tests.support.registry.graphs import GRAPH

Author = Callable[..., Draft]

MODEL = """\
schema: 1
kind: model
name: net
version: 1.0.0
license: Apache-2.0
task: image-classification
framework: {name: onnxruntime, version: "*"}
format: onnx
inputs:
  - name: x
    type: image
    dtype: float32
    shape: [null, 8, 8, 1]
    layout: NHWC
    steps: [{decode: {color: L, exif: ignore}}, {cast: {dtype: float32}}]
outputs:
  - {name: y, type: class-scores, dtype: float32, label_offset: 0}
files:
  - {path: net.onnx, role: graph, source: net.onnx}
  - {path: README.md, role: card, source: README.md}
"""
ATTACK = "# Net\n\n\x1b[2J\x1b]0;title\x07over\rwritten \u202edrawkcab\u202c and plain: é 猫\n"


def test_a_card_is_text_without_what_a_terminal_obeys(author: Author, store: LocalStore, catalogue: Catalogue) -> None:
    draft = author(MODEL, {"net.onnx": GRAPH, "README.md": ATTACK.encode()})
    manifest = catalogue.manifest(publish(draft, store, catalogue).reference)
    card = read_card(manifest, store)
    assert card is not None
    assert (card.path, card.cut) == (card_path(manifest), 0) == ("README.md", 0)
    assert card.text.startswith("# Net\n")
    assert "é 猫" in card.text
    assert all(character.isprintable() or character == "\n" for character in card.text)


def test_a_long_card_is_cut(author: Author, store: LocalStore, catalogue: Catalogue) -> None:
    draft = author(MODEL, {"net.onnx": GRAPH, "README.md": b"x" * (SHOWN + 5)})
    card = read_card(catalogue.manifest(publish(draft, store, catalogue).reference), store)
    assert card is not None
    assert (len(card.text), card.cut) == (SHOWN, 5)


@pytest.mark.parametrize(
    ("content", "message"), [(b"x" * (LARGEST + 1), "has more than 1048576 bytes"), (b"\xff", "is not UTF-8")]
)
def test_a_card_that_is_no_text_is_refused(
    author: Author, store: LocalStore, catalogue: Catalogue, content: bytes, message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        publish(author(MODEL, {"net.onnx": GRAPH, "README.md": content}), store, catalogue)


def test_show_prints_the_card_and_json_names_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (DIGITS / "models" / "digits-onnx.yaml").read_text()
    text = text.replace("source: ./", f"source: {DIGITS}/models/").replace("source: ../", f"source: {DIGITS}/")
    text = text.replace("claims:", "  - {path: card.md, role: card, source: card.md}\nclaims:")
    (tmp_path / "card.md").write_text(ATTACK)
    (tmp_path / "manifest.yaml").write_text(text)
    commands = Commands(tmp_path / "registry")
    commands.done("publish", tmp_path)
    assert commands.done("show", "model/digits-onnx")["card"] == "card.md"
    assert run(["--registry", str(commands.registry), "show", "model/digits-onnx"]) == 0
    shown = capsys.readouterr().out
    assert "\ncard.md\n\n  | # Net\n" in shown
    assert "\x1b" not in shown
