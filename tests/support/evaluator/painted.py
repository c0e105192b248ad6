"""Pictures of red and green fields, and networks of a few nodes that find, outline and measure them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

CELLS = 4
"""A picture is divided in so many rows and as many columns of fields."""
SIDE = 32
"""Height and width of what the networks take."""
PICTURES = (
    # Height and width in pixels; row, column and colour (0 red, 1 green) of each field.
    ((64, 96), ((0, 1, 0), (2, 3, 1))),
    ((32, 32), ((3, 0, 1),)),
    ((48, 128), ((1, 1, 0), (1, 3, 0))),
    ((96, 64), ()),
)
STEPS: list[dict[str, Any]] = [
    {"decode": {"color": "RGB", "exif": "ignore"}},
    {"resize": {"size": [SIDE, SIDE], "method": "area", "antialias": True}},
    {"scale": {"factor": 1 / 255}},
    {"transpose": {"layout": "NCHW"}},
]
_NAMES = [f"{number}.png" for number in range(len(PICTURES))]


def painted(number: int) -> NDArray[np.uint8]:
    """The picture of that number: blue, with its fields."""
    (height, width), fields = PICTURES[number]
    values = np.zeros((height, width, 3), np.uint8)
    values[..., 2] = 60
    for row, column, colour in fields:
        rows, columns = (
            slice(k * side // CELLS, (k + 1) * side // CELLS) for k, side in ((row, height), (column, width))
        )
        values[rows, columns] = 0
        values[rows, columns, colour] = 255 - 10 * row  # so that no two fields of a colour are alike in all pictures
    return values


def write_pictures(folder: Path) -> None:
    """``pictures/``, ``masks/``, ``coco.json``, and an index of the masks and one of the brightness."""
    (folder / "pictures").mkdir(parents=True)
    (folder / "masks").mkdir()
    brightness = ["path,label"]
    for number, name in enumerate(_NAMES):
        picture = painted(number)
        Image.fromarray(picture).save(folder / "pictures" / name)
        Image.fromarray(mask_of(number)).save(folder / "masks" / name)
        brightness.append(f"pictures/{name},{picture[..., 0].mean() / 255 + 0.5}")
    (folder / "coco.json").write_text(json.dumps(_annotations()))
    (folder / "masks.csv").write_text("\n".join(["path,mask", *(f"pictures/{name},masks/{name}" for name in _NAMES)]))
    (folder / "brightness.csv").write_text("\n".join(brightness))


def mask_of(number: int) -> NDArray[np.uint8]:
    """Which pixel is red (0), green (1) or neither (2); the first row is not to be compared (255)."""
    picture = painted(number)
    mask = np.full(picture.shape[:2], 2, np.uint8)
    for colour in (0, 1):
        mask[picture[..., colour] > 0] = colour
    mask[0] = 255
    return mask


def boxes_of(number: int) -> list[list[float]]:
    """Colour, x, y, width and height in pixels of each field."""
    (height, width), fields = PICTURES[number]
    high, wide = height / CELLS, width / CELLS
    return [[colour, column * wide, row * high, wide, high] for row, column, colour in fields]


def _annotations() -> dict[str, Any]:
    """Category 7 is red, 9 is green; a third field is said to be in the last picture, where nothing is."""
    flat = [(number, box) for number in range(len(PICTURES)) for box in boxes_of(number)]
    flat.append((len(PICTURES) - 1, [1, 0.0, 0.0, 10.0, 10.0]))
    return {
        "images": [
            {"id": number + 1, "file_name": _NAMES[number], "height": size[0], "width": size[1]}
            for number, (size, _) in enumerate(PICTURES)
        ],
        "categories": [{"id": 7, "name": "red"}, {"id": 9, "name": "green"}],
        "annotations": [
            {
                "id": index + 1,
                "image_id": number + 1,
                "category_id": 7 + 2 * int(colour),
                "bbox": corner,
                "area": corner[2] * corner[3],
                "iscrowd": 0,
            }
            for index, (number, (colour, *corner)) in enumerate(flat)
        ],
    }


def detector(path: Path) -> None:
    """``boxes`` [1, 16, 4] relative x1, y1, x2, y2 of the fields, ``scores`` [1, 16, 3]: nothing, red, green."""
    edges = np.arange(CELLS) / CELLS
    rows, columns = (line.reshape(-1) for line in np.meshgrid(edges, edges, indexing="ij"))
    anchors = np.stack([columns, rows, columns + 1 / CELLS, rows + 1 / CELLS], axis=1)[np.newaxis].astype(np.float32)
    nodes = [
        helper.make_node("Slice", ["x", "first", "third", "channel"], ["colours"]),
        helper.make_node("AveragePool", ["colours"], ["pooled"], kernel_shape=[8, 8], strides=[8, 8]),
        helper.make_node("Reshape", ["pooled", "flat"], ["lines"]),
        helper.make_node("Transpose", ["lines"], ["found"], perm=[0, 2, 1]),
        helper.make_node("Concat", ["nothing", "found"], ["scores"], axis=2),
        helper.make_node("Identity", ["anchors"], ["boxes"]),
    ]
    values = {
        "first": np.array([0]),
        "third": np.array([2]),
        "channel": np.array([1]),
        "flat": np.array([1, 2, CELLS**2]),
        "nothing": np.full((1, CELLS**2, 1), 0.95, np.float32),
        "anchors": anchors,
    }
    _save(path, nodes, values, {"boxes": [1, CELLS**2, 4], "scores": [1, CELLS**2, 3]})


def outliner(path: Path) -> None:
    """``mask`` [1, 32, 32]: the channel that is brightest, 0 red, 1 green, 2 blue."""
    nodes = [helper.make_node("ArgMax", ["x"], ["mask"], axis=1, keepdims=0)]
    _save(path, nodes, {}, {"mask": [1, SIDE, SIDE]}, TensorProto.INT64)


def meter(path: Path) -> None:
    """``value`` [1, 1]: the mean of red."""
    nodes = [
        helper.make_node("Slice", ["x", "first", "second", "channel"], ["red"]),
        helper.make_node("GlobalAveragePool", ["red"], ["pooled"]),
        helper.make_node("Reshape", ["pooled", "one"], ["value"]),
    ]
    values = {"first": np.array([0]), "second": np.array([1]), "channel": np.array([1]), "one": np.array([1, 1])}
    _save(path, nodes, values, {"value": [1, 1]})


def _save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    values: dict[str, NDArray[Any]],
    outputs: dict[str, list[int]],
    kind: int = TensorProto.FLOAT,
) -> None:
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, SIDE, SIDE])]
    found = [helper.make_tensor_value_info(name, kind, shape) for name, shape in outputs.items()]
    constants = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "painted", given, found, initializer=constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
