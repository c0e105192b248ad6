"""What inputs and outputs have in common: names of tensors, types, descriptions."""

from dataclasses import dataclass
from typing import get_args

from benchlock.registry.importing.findings import printable, shown
from benchlock.registry.importing.original import Original
from benchlock.registry.importing.outline import Lines, entry
from benchlock.registry.manifests.parts import DType

DTYPES: tuple[str, ...] = get_args(DType)

_BY_POSITION = ("torchscript", "torch-export", "safetensors", "state-dict", "keras", "hdf5")
_LAYER = "layer_name"


@dataclass(frozen=True, slots=True)
class Network:
    """What is known of the network: its native format, None if unknown."""

    format: str | None

    @property
    def by_position(self) -> bool:
        """Whether its tensors are told apart by their position, so that their names are free."""
        return self.format in _BY_POSITION


def description_comment(port: Original) -> Lines:
    """The description of an input or output, which has no key of its own, as a comment."""
    written = port.text("description")
    return [f"# {printable(written.strip())}"] if written and written.strip() else []


def name_lines(port: Original, key: str, position: int, kind: str, network: Network) -> tuple[str | None, Lines]:
    """The name of an input or output, from ``key`` or from ``layer_name``, and what is written of it."""
    key = key if port.says(key) or not port.says(_LAYER) else _LAYER
    written, notes, path = port.text(key), port.notes, port.path(key)
    if written is None:
        what = f"the original does not name the {kind}"
        ask = "write the tensor's name" if not network.by_position else "write a name: its position counts"
        return None, [notes.todo(path, "no-layer", "name", what, ask)]
    if not written.isdecimal():
        return written, entry("name", written)
    if network.by_position and int(written) == position:
        name = f"{kind}_{position}"
        notes.tell(
            path, "position", f"the {kind} is named by its position, {written}", f"named {name}: positions count"
        )
        return name, entry("name", name)
    what = f"the original gives the position {written} in place of a name"
    ask = f"write the name of the {kind} at that position"
    if network.by_position:
        ask = f"list the {kind} at that position, by a name of yours"
    return None, [notes.todo(path, "position", "name", what, ask)]


def dtype_lines(port: Original) -> tuple[str | None, Lines]:
    """The element type, and what is written of it."""
    written = port.text("element_type")
    path, notes = port.path("element_type"), port.notes
    dtype = (written or "").strip().lower()
    if dtype in DTYPES:
        return dtype, entry("dtype", dtype)
    what = f"{shown(written)} is no type of elements here" if written else "the original does not say the element type"
    return None, [notes.todo(path, "dtype", "dtype", what, f"write one of {', '.join(DTYPES)}")]
