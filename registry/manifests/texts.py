"""What the steps of texts do to shape and dtype."""

import re
from collections.abc import Callable, Mapping

from benchlock.registry.manifests import steps as vocabulary
from benchlock.registry.manifests.tensors import TEXT, Tensor
from benchlock.registry.yaml import Place


def _decode(step: vocabulary.DecodeText, tensor: Tensor, place: Place) -> Tensor:  # noqa: ARG001 - all alike
    return Tensor((), TEXT)


def _words(step: vocabulary.Words, tensor: Tensor, place: Place) -> Tensor:
    try:
        re.compile(step.pattern)
    except (re.error, OverflowError) as error:
        what = f"{step.pattern!r} is no regular expression of Python: {error}"
        raise place.at("pattern").error(what, r"write one that splits, such as '\\s+'") from error
    return _tokens(step, tensor, place)


def _tokens(step: vocabulary.Words | vocabulary.TokenizerJson, tensor: Tensor, place: Place) -> Tensor:
    if tensor.dtype not in (TEXT, None):
        raise place.error(f"tokenize takes a text, here it gets {tensor.dtype}", "put it behind decode")
    return Tensor((step.length,), "int64")


TEXTS: Mapping[type[object], Callable[..., Tensor]] = {
    vocabulary.DecodeText: _decode,
    vocabulary.Words: _words,
    vocabulary.TokenizerJson: _tokens,
}
