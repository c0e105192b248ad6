"""Pictures as the program's flat parameters describe them: size, colour, mean and scale, in the order of its code."""

from dataclasses import dataclass

from benchlock.registry.importing.findings import shown
from benchlock.registry.importing.original import Original
from benchlock.registry.importing.outline import Lines, block, element, entry, flow

LAYOUTS = {"CHW": "NCHW", "HWC": "NHWC", "NCHW": "NCHW", "NHWC": "NHWC"}
COLORS = ("RGB", "BGR", "L")
CHANNELS = (1, 3, 4)

_SIDES = 3
ASK_ASPECT = (
    "write resize: {shorter: …} with center_crop, to which torchvision's transforms add rounding: down and "
    "offset: half_even; or pad"
)
_ASK_RESIZE = "write method, antialias and, with antialias: false, coordinates"


@dataclass(frozen=True, slots=True)
class Picture:
    """What is known of the tensor that a picture becomes; None is unsaid."""

    channels: int | None = None
    height: int | None = None
    width: int | None = None
    layout: str | None = None

    @property
    def shape(self) -> list[int | None] | None:
        """The native shape with a free batch axis, if all of it is known."""
        if self.channels is None or self.layout is None:
            return None
        sides = [self.height, self.width]
        return [None, *sides, self.channels] if self.layout == "NHWC" else [None, self.channels, *sides]


def shape_lines(port: Original, picture: Picture, key: str) -> Lines:
    """Shape and layout, or what is missing of them."""
    notes, lines = port.notes, Lines()
    if picture.shape is None or None in picture.shape[1:]:
        what = "the original does not say the whole shape"
        ask = "write it, with null for the batch axis"
        lines.append(notes.todo(port.path(key), "shape", "shape", what, ask))
    else:
        lines.append(f"shape: {flow(picture.shape)}")
    return lines


def layout_line(port: Original, key: str) -> tuple[str | None, Lines]:
    written = port.text(key)
    layout = LAYOUTS.get((written or "").strip().upper())
    if layout:
        return layout, entry("layout", layout)
    if written:
        what, ask = f"{shown(written)} is no layout of a picture", "write NHWC or NCHW"
    else:
        what, ask = "the original says none", "write NHWC, which their program took then, or NCHW"
    return None, [port.notes.todo(port.path(key), "layout", "layout", what, ask)]


def decode_step(port: Original, key: str) -> Lines:
    """The first step: the colours that the original says, and the orientation, of which none says anything."""
    written, notes, path = port.text(key), port.notes, port.path(key)
    color = (written or "").strip().upper()
    if color in COLORS:
        lines = entry("color", color)
    elif written:
        lines = [notes.todo(path, "color", "color", f"unknown color mode {shown(written)}", "write RGB, BGR or L")]
    else:
        ask = "write RGB, which their program took then, BGR or L"
        lines = [notes.todo(path, "color", "color", "the original says none", ask)]
    what = "nothing says whether the orientation that a file states is applied"
    lines.append(notes.todo(path, "exif", "exif", what, "write ignore or apply"))
    return element(block("decode", lines))


def resize_step(port: Original, picture: Picture, key: str, said: Lines) -> Lines:
    """A resize to the picture's size; ``said`` are the arguments that the original states itself."""
    lines = [f"size: {flow([picture.height, picture.width])}", *said]
    if not any(line.startswith("method:") for line in said):
        what = "nothing says how pictures are resized"
        lines.append(port.notes.todo(port.path(key), "resize", "resize", what, _ASK_RESIZE))
    else:
        what = "nothing says whether resizing smooths, nor where it takes its samples"
        ask = "write antialias and, with antialias: false, coordinates"
        lines.append(port.notes.todo(port.path(key), "resize", "resize", what, ask))
    return element(block("resize", lines))


def dimensions(port: Original, key: str) -> tuple[int, int, int] | None:
    """Channels, height and width: the order in which their program takes them, whatever the layout."""
    if not port.says(key):
        return None
    found = port.numbers(key)
    if found is None:
        return None
    problem = _problem(found)
    if not problem:
        channels, height, width = (int(one) for one in found)
        return channels, height, width
    ask = "their program takes channels, height, width: write shape, and a resize, as the network wants them"
    port.notes.todo_unplaced(port.path(key), "dimensions", f"{shown(list(found))} {problem}", ask)
    return None


def _problem(found: tuple[float, ...]) -> str:
    if any(one != int(one) or one < 1 for one in found):
        return "are no sizes"
    if len(found) == 1:
        return "is one size, for which their program's versions put 3 or that size as channels"
    if len(found) > _SIDES:
        return f"are {len(found)} sizes, and their program refuses a batch size among them"
    if len(found) != _SIDES:
        return "are two sizes"
    if found[0] not in CHANNELS:
        return f"begin with {found[0]:g} channels"
    return ""
