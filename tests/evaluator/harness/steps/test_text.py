"""Steps of texts, against what the library ``tokenizers`` and its parts give, and tables worked out by hand."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job import Step
from benchlock.evaluator.harness.steps import StepError, Tensor, bind
from benchlock.evaluator.harness.steps.text import decode

# As Keras numbers the words of reviews: 0 fills up, 1 begins, 2 stands for words that are not known.
VOCABULARY = "<pad> 0\n<start> 1\n<unknown> 2\nthe 4\nfilm 22\nwas 16\ngood 52\n"
WORDS: dict[str, Any] = {
    "kind": "words",
    "vocabulary": "words.txt",
    "pattern": r"\W+",
    "lowercase": True,
    "start": "<start>",
    "unknown": "<unknown>",
    "pad": "<pad>",
    "length": 6,
    "truncate": "end",
    "pad_side": "end",
    "yields": "ids",
}
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "film", "was", "good", "##s", "un", "##good", "!", "."]
JSON: dict[str, Any] = {
    "kind": "tokenizer-json",
    "file": "tokenizer.json",
    "length": 8,
    "truncate": "end",
    "pad_side": "end",
    "pad": "[PAD]",
    "yields": "ids",
}

Tokenizing = Callable[..., list[int]]


def tokenizing(folder: Path, base: dict[str, Any]) -> Tokenizing:
    def tokens(text: str, **changes: object) -> list[int]:
        (step,) = bind("text", [Step("tokenize", base | changes)], folder)
        found = step.apply(decode(text.encode(), encoding="utf-8")).values
        assert (str(found.dtype), found.ndim) == ("int64", 1)
        return list(found.tolist())

    return tokens


@pytest.fixture
def words(tmp_path: Path) -> Tokenizing:
    (tmp_path / "words.txt").write_text(VOCABULARY)
    return tokenizing(tmp_path, WORDS)


@pytest.fixture(scope="module")
def library() -> Tokenizer:
    """A small WordPiece, as BERT's is made."""
    made = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


@pytest.fixture
def pieces(library: Tokenizer, tmp_path: Path) -> Tokenizing:
    """The file says to truncate and to pad in other ways, which do not count."""
    whole = Tokenizer.from_str(library.to_str())
    whole.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    whole.enable_truncation(3)
    whole.enable_padding(pad_id=7, length=99)
    whole.save(str(tmp_path / "tokenizer.json"))
    return tokenizing(tmp_path, JSON)


@pytest.mark.parametrize("source", [b"na\xc3\xafve \xf0\x9f\x99\x82\0", "naïve \U0001f642\0", np.array("naïve")])
def test_a_text_is_decoded(source: Any) -> None:  # noqa: ANN401 - a source of any form
    found = decode(source, encoding="utf-8").values
    assert found.item() in ("naïve \U0001f642\0", "naïve")


@pytest.mark.parametrize(
    ("source", "message"),
    [(b"abc\xff", "byte 3 is no utf-8: invalid start byte"), (np.zeros(3), r"\[3\] float64 is no text")],
)
def test_what_is_no_text_is_refused(source: Any, message: str) -> None:  # noqa: ANN401 - wrong on purpose
    with pytest.raises(StepError, match=message):
        decode(source, encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("The film was good", {}, [1, 4, 22, 16, 52, 0]),
        ("The film was good", {"lowercase": False}, [1, 2, 22, 16, 52, 0]),
        ("  the,film!! ", {"start": None}, [4, 22, 0, 0, 0, 0]),  # nothing between two separators is no word
        ("the awful film", {}, [1, 4, 2, 22, 0, 0]),
        ("the film", {"pad_side": "start"}, [0, 0, 0, 1, 4, 22]),
        ("the film was good", {"length": 3}, [1, 4, 22]),
        ("the film was good", {"length": 3, "truncate": "start"}, [22, 16, 52]),  # as Keras: the start goes too
        ("the film was good", {"length": 5, "truncate": "start"}, [1, 4, 22, 16, 52]),
        ("", {}, [1, 0, 0, 0, 0, 0]),
        ("the-film was", {"pattern": r"( )|-", "unknown": "was"}, [1, 4, 22, 16, 16, 0]),  # a group is a word too
        ("the film", {"yields": "mask"}, [1, 1, 1, 0, 0, 0]),
        ("the film", {"yields": "mask", "pad_side": "start"}, [0, 0, 0, 1, 1, 1]),
        ("the film was good", {"yields": "mask", "length": 3}, [1, 1, 1]),
        ("the film", {"yields": "types"}, [0] * 6),
    ],
)
def test_words_are_looked_up(words: Tokenizing, text: str, changes: dict[str, Any], expected: list[int]) -> None:
    assert words(text, **changes) == expected


@pytest.mark.parametrize(
    ("start", "truncate"),
    [("<start>", "end"), (None, "end"), (None, "start")],  # of a start that is cut off too the library knows nothing
)
@pytest.mark.parametrize("pad_side", ["start", "end"])
@pytest.mark.parametrize("pattern", [r"\W+", r"[ ,!]", r"(?:o|\s)+"])
@pytest.mark.parametrize(
    "text", ["The film was good", "  good, GOOD!! the awful,film ", "was\n\u00dcber-good \u00df", ""]
)
def test_words_are_those_of_the_librarys_word_level_tokenizer(
    words: Tokenizing, text: str, pattern: str, pad_side: str, truncate: str, start: str | None
) -> None:
    numbers = {word: int(number) for word, number in map(str.split, VOCABULARY.splitlines())}
    plain = Tokenizer(models.WordLevel(numbers, unk_token="<unknown>"))
    plain.normalizer = normalizers.Lowercase()
    plain.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "removed")
    if start:
        plain.post_processor = processors.TemplateProcessing(single=f"{start} $A", special_tokens=[(start, 1)])
    for length in (1, 2, 4, 6):
        plain.enable_truncation(length, direction="left" if truncate == "start" else "right")
        plain.enable_padding(
            direction="left" if pad_side == "start" else "right", length=length, pad_id=0, pad_token="<pad>"
        )
        found = plain.encode(text)
        given = {"pattern": pattern, "pad_side": pad_side, "truncate": truncate, "start": start, "length": length}
        assert words(text, **given) == found.ids
        assert words(text, **given, yields="mask") == found.attention_mask


@pytest.mark.parametrize(
    ("vocabulary", "expected"),
    [
        ("<pad>\n<start>\n<unknown>\nthe\nfilm", [1, 3, 4, 0, 0, 0]),
        ("\ufeff<pad>\r\n<start>\r\n<unknown>\r\n\r\nfilm\r\nthe\r\n", [1, 5, 4, 0, 0, 0]),  # an empty line counts
        ("<pad>\t9\n<start>  8\n<unknown> 7\nthe 6\nfilm 5\na word 4\n", [8, 6, 5, 9, 9, 9]),
        ("<pad>\n<start>\n<unknown>\n3\nthe\nfilm\n", [1, 4, 5, 0, 0, 0]),  # a number alone is a token
    ],
)
def test_a_line_of_the_vocabulary_has_its_own_number_or_states_one(
    tmp_path: Path, vocabulary: str, expected: list[int]
) -> None:
    (tmp_path / "words.txt").write_text(vocabulary, encoding="utf-8", newline="")
    assert tokenizing(tmp_path, WORDS)("the film") == expected


@pytest.mark.parametrize(
    ("vocabulary", "changes", "message"),
    [
        (None, {}, "steps\\[0\\].tokenize: FileNotFoundError"),
        (b"the\xff", {}, "words.txt: byte 3 is no UTF-8"),
        (b"the 1\nfilm\n", {}, "words.txt, line 2: 'film' has no number behind it"),
        (b"the\nfilm\nthe\n", {}, "words.txt, line 3: 'the' stands twice"),
        (VOCABULARY.encode(), {"start": "<s>"}, "words.txt has no token '<s>'"),
        (VOCABULARY.encode(), {"unknown": "?"}, "words.txt has no token '\\?'"),
        (VOCABULARY.encode(), {"pattern": "("}, "no regular expression: missing"),
        (VOCABULARY.encode(), {"truncate": "left"}, "truncate 'left'"),
        (VOCABULARY.encode(), {"yields": "lengths"}, "yields no 'lengths'"),
        (VOCABULARY.encode(), {"kind": "bytes"}, "no kind of tokens 'bytes'"),
        (VOCABULARY.encode(), {"stem": True}, "TypeError.*'stem'"),
    ],
)
def test_words_that_cannot_be_looked_up_are_refused_when_the_model_is_loaded(
    tmp_path: Path, vocabulary: bytes | None, changes: dict[str, Any], message: str
) -> None:
    if vocabulary is not None:
        (tmp_path / "words.txt").write_bytes(vocabulary)
    with pytest.raises(StepError, match=message):
        bind("text", [Step("tokenize", WORDS | changes)], tmp_path)


@pytest.mark.parametrize("pad_side", ["start", "end"])
@pytest.mark.parametrize("truncate", ["start", "end"])
@pytest.mark.parametrize("length", [2, 3, 5, 8, 12])
@pytest.mark.parametrize("text", ["The films was ungood!", "the", "", "xyz the"])
def test_a_tokenizer_file_gives_what_the_library_gives_piece_by_piece(
    pieces: Tokenizing, library: Tokenizer, text: str, length: int, truncate: str, pad_side: str
) -> None:
    """Exactly: the pieces are the library's, without special tokens; cut, framed and filled up here once more."""
    plain = library.encode(text, add_special_tokens=False).ids
    room = length - 2
    kept = plain[:room] if truncate == "end" else plain[max(0, len(plain) - room) :]
    filling = [0] * (room - len(kept))
    ids, mask, types = [2, *kept, 3], [1] * (len(kept) + 2), [0] * (len(kept) + 1) + [1]
    for name, row in {"ids": ids, "mask": mask, "types": types}.items():
        expected = row + filling if pad_side == "end" else filling + row
        assert pieces(text, length=length, truncate=truncate, pad_side=pad_side, yields=name) == expected


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (None, {"file": "none.json"}, "steps\\[0\\].tokenize: FileNotFoundError"),
        ("{", {}, "tokenizer.json is no tokenizer: EOF while parsing"),
        (None, {"pad": "<pad>"}, "tokenizer.json has no token '<pad>'"),
        (None, {"length": 1}, "adds 2 special tokens, which do not fit into a length of 1"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_refused_when_the_model_is_loaded(
    pieces: Tokenizing, tmp_path: Path, content: str | None, changes: dict[str, Any], message: str
) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(StepError, match=message):
        pieces("the", **changes)


def test_a_library_that_the_environment_lacks_is_named(pieces: Tokenizing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(Failure, match="needs tokenizers, which the environment lacks") as caught:
        pieces("the", length=7)
    assert caught.value.kind == "load"


def test_tokens_are_of_texts_alone(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text(VOCABULARY)
    (step,) = bind("text", [Step("tokenize", WORDS)], tmp_path)
    with pytest.raises(StepError, match=r"tokenize requires text; its input is \[2\] float64"):
        step.apply(Tensor(np.zeros(2)))
    with pytest.raises(StepError, match=r"steps\[0\].tokenize: no such step"):
        bind("image", [Step("tokenize", WORDS)], tmp_path)
