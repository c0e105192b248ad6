"""Whether boxes can be told in pixels of the original picture: a step that moves pixels must be one that is followed.

Code of the model's author may change values, and nothing says where it moved them; so it must leave the size. Where the
size before it depends on the sample, the run looks at each picture.
"""

from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.manifests.effects import follow
from benchlock.registry.manifests.model import ImageInput, Model
from benchlock.registry.manifests.steps import Pad, Python
from benchlock.registry.manifests.tensors import Tensor, declared
from benchlock.registry.yaml import Place

_INSTEAD = "resize, pad and crop by steps of these names, which are followed; code may change values alone"


def check_geometry(model: Model, place: Place) -> None:
    """Of a model whose boxes are taken back to its first picture.

    Raises:
        InvalidInputError: a step certainly makes another size of it, in a way that cannot be followed.
    """
    pictures = ((port, place.at("inputs", index)) for index, port in enumerate(model.inputs))
    port, there = next((pair for pair in pictures if isinstance(pair[0], ImageInput)), (None, place))
    if model.predictions is UNSET or not isinstance(port, ImageInput):
        return
    for index, step in enumerate(port.steps):
        if len(step.present()) != 1:
            return  # which is a fault of its own
        here = there.at("steps", index, step.name)
        if isinstance(step.arguments, Pad) and step.arguments.length is not UNSET:
            what = "a picture whose first axis is cut or padded to a length cannot be laid over the original any more"
            raise here.at("length").error(what, "write top, bottom, left, right, which are followed")
        if isinstance(step.arguments, Python):
            try:
                given, wanted = follow(Tensor(), port.steps[:index], there.at("steps")), declared(port, there)
            except InvalidInputError:
                return  # the same
            _check_code(given, wanted, here)
            return  # nothing is known of what comes behind it


def _check_code(given: Tensor, wanted: Tensor, place: Place) -> None:
    """``given`` is what the code takes, ``wanted`` what the model does, and nothing after code changes a size."""
    sides = [(given.size(letter), wanted.size(letter)) for letter in "HW"]
    if not any(isinstance(is_, int) and isinstance(must, int) and must != is_ for is_, must in sides):
        return
    before, after = (" x ".join("?" if size is None else str(size) for size in one) for one in zip(*sides, strict=True))
    what = f"code makes {after} pixels of {before}, and nothing says where in the original picture its boxes are then"
    raise place.error(what, _INSTEAD)
