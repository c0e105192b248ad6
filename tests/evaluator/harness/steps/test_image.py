"""Steps of pictures against Pillow itself, SciPy, and sums written out by hand."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms
from scipy.ndimage import map_coordinates

from benchlock.evaluator.harness.core.job import Step
from benchlock.evaluator.harness.datasets.labels import read_mask
from benchlock.evaluator.harness.steps import StepError, Tensor, bind
from benchlock.evaluator.harness.steps.image import center_crop, decode, resize
from benchlock.evaluator.harness.steps.numeric import cast

METHODS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "area": Image.Resampling.BOX,
}


def noise(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(7).integers(0, 256, shape, dtype=np.uint8)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:  # noqa: ANN401 - Pillow's
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def test_decode_takes_the_colours_in_the_order_asked() -> None:
    picture = noise(5, 7, 3)
    content = encoded(Image.fromarray(picture))
    np.testing.assert_array_equal(decode(content, color="RGB", exif="ignore").values, picture)
    np.testing.assert_array_equal(decode(content, color="BGR", exif="ignore").values, picture[..., ::-1])
    grey = decode(content, color="L", exif="ignore")
    assert (str(grey.values.dtype), grey.values.shape, grey.layout) == ("uint8", (5, 7, 1), "HWC")
    # ITU-R 601-2, as Pillow documents it, in 16-bit fixed point: within one step of the exact sum.
    exact = picture @ np.array([299, 587, 114]) / 1000
    assert np.abs(grey.values[..., 0] - exact).max() <= 1


def test_decode_makes_three_channels_of_a_grey_picture() -> None:
    picture = noise(4, 6)
    content = encoded(Image.fromarray(picture), "JPEG", quality=95)
    with Image.open(io.BytesIO(content)) as image:
        reference = np.asarray(image)
    np.testing.assert_array_equal(decode(content, color="RGB", exif="ignore").values, np.dstack([reference] * 3))


def test_decode_drops_alpha_and_never_blends_it() -> None:
    picture = noise(4, 6, 4)
    picture[..., 3] = 0
    np.testing.assert_array_equal(
        decode(encoded(Image.fromarray(picture)), color="RGB", exif="ignore").values, picture[..., :3]
    )


def test_decode_turns_a_picture_only_when_told() -> None:
    picture = noise(5, 8, 3)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    content = encoded(Image.fromarray(picture), exif=exif.tobytes())
    np.testing.assert_array_equal(decode(content, color="RGB", exif="ignore").values, picture)
    np.testing.assert_array_equal(decode(content, color="RGB", exif="apply").values, np.rot90(picture, -1))


@pytest.mark.parametrize("compression", [None, "tiff_lzw"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_tiff_is_turned_only_when_told_whatever_pillow_does(orientation: int, compression: str | None) -> None:
    picture = noise(5, 8, 3)
    content = encoded(Image.fromarray(picture), "TIFF", tiffinfo={0x0112: orientation}, compression=compression)
    np.testing.assert_array_equal(decode(content, color="RGB", exif="ignore").values, picture)
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = decode(encoded(Image.fromarray(picture), exif=exif.tobytes()), color="RGB", exif="apply")
    np.testing.assert_array_equal(decode(content, color="RGB", exif="apply").values, turned.values)


def test_what_is_no_picture_is_told_without_an_address_in_memory() -> None:
    with pytest.raises(StepError) as caught:
        decode(b"no picture", color="RGB", exif="ignore")
    assert str(caught.value) == "cannot decode the file as a picture"


def test_decode_reads_a_jpeg_in_full_however_small_the_result() -> None:
    smooth = Image.fromarray(noise(8, 8, 3)).resize((640, 480), Image.Resampling.BICUBIC)
    content = encoded(smooth, "JPEG")
    with Image.open(io.BytesIO(content)) as image:
        reference = np.asarray(image.convert("RGB"))
    decoded = decode(content, color="RGB", exif="ignore")
    np.testing.assert_array_equal(decoded.values, reference)


@pytest.mark.parametrize("shape", [(4, 6), (4, 6, 1)])
def test_decode_only_converts_an_array(shape: tuple[int, ...]) -> None:
    picture = noise(*shape)
    flat = picture.reshape(4, 6)
    np.testing.assert_array_equal(decode(picture, color="L", exif="ignore").values[..., 0], flat)
    np.testing.assert_array_equal(decode(picture, color="RGB", exif="ignore").values, np.dstack([flat] * 3))


@pytest.mark.parametrize("dtype", ["float32", "uint16", "int32", "bool"])
def test_decode_clips_no_array(dtype: str) -> None:
    with pytest.raises(StepError, match=f"must be uint8 to be a picture, but is {dtype}"):
        decode(np.full((4, 6), 1, dtype), color="L", exif="ignore")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [(9, 14), (50, 31)])
def test_resize_of_bytes_is_pillows(method: str, size: tuple[int, int]) -> None:
    picture = noise(23, 37, 3)
    reference = Image.fromarray(picture).resize((size[1], size[0]), METHODS[method])
    resized = resize(Tensor(picture, "HWC"), size=size, method=method, antialias=True)
    np.testing.assert_array_equal(resized.values, np.asarray(reference))


@pytest.mark.parametrize("method", METHODS)
def test_resize_of_floats_is_pillows_on_each_channel_in_any_layout(method: str) -> None:
    picture = np.random.default_rng(3).normal(0, 500, (23, 37, 3)).astype(np.float32)
    channels = [Image.fromarray(picture[..., index]).resize((14, 9), METHODS[method]) for index in range(3)]
    reference = np.stack([np.asarray(channel) for channel in channels])
    resized = resize(Tensor(picture.transpose(2, 0, 1), "CHW"), size=(9, 14), method=method, antialias=True)
    assert (resized.layout, str(resized.values.dtype)) == ("CHW", "float32")
    np.testing.assert_array_equal(resized.values, reference)


@pytest.mark.parametrize(
    ("shape", "shorter", "expected"),
    [
        ((480, 640), 256, (256, 341)),  # 341.33
        ((640, 480), 256, (341, 256)),
        ((500, 500), 256, (256, 256)),
        ((4, 5), 2, (2, 2)),  # 2.5 goes to the even 2
        ((4, 7), 2, (2, 4)),  # 3.5 goes to the even 4
    ],
)
def test_the_shorter_side_rules_and_half_goes_to_even(
    shape: tuple[int, int], shorter: int, expected: tuple[int, int]
) -> None:
    resized = resize(Tensor(noise(*shape, 3), "HWC"), shorter=shorter, method="area", antialias=True)
    assert resized.values.shape == (*expected, 3)


def points(source: int, target: int, coordinates: str) -> list[float]:
    """Where each result is read, written from the definitions of the three conventions."""
    return [
        {
            "half_pixel": (i + 0.5) * (source / target) - 0.5,
            "asymmetric": i * (source / target),
            "align_corners": i * ((source - 1) / (target - 1)),
        }[coordinates]
        for i in range(target)
    ]


def keys(distance: float) -> float:
    """The cubic convolution kernel with a = -0.75."""
    d, a = abs(distance), -0.75
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("size", [(5, 9), (20, 31)])
def test_bilinear_without_antialias_is_scipys(coordinates: str, size: tuple[int, int]) -> None:
    picture = np.random.default_rng(5).normal(0, 100, (11, 17, 2)).astype(np.float32)
    rows, columns = (points(side, want, coordinates) for side, want in zip((11, 17), size, strict=True))
    grid = np.meshgrid(rows, columns, indexing="ij")
    reference = np.dstack(
        [map_coordinates(picture[..., c].astype(float), grid, order=1, mode="nearest") for c in (0, 1)]
    )
    resized = resize(Tensor(picture, "HWC"), size=size, method="bilinear", antialias=False, coordinates=coordinates)
    assert resized.values.dtype == np.float32
    np.testing.assert_allclose(resized.values, reference, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric", "align_corners"])
def test_bicubic_without_antialias_is_the_sum_over_sixteen_pixels(coordinates: str) -> None:
    picture = np.random.default_rng(5).normal(0, 100, (6, 7, 1)).astype(np.float32)
    size = (9, 4)
    reference = np.zeros(size)
    for i, y in enumerate(points(6, size[0], coordinates)):
        for j, x in enumerate(points(7, size[1], coordinates)):
            for row in range(int(np.floor(y)) - 1, int(np.floor(y)) + 3):
                for column in range(int(np.floor(x)) - 1, int(np.floor(x)) + 3):
                    value = float(picture[min(max(row, 0), 5), min(max(column, 0), 6), 0])
                    reference[i, j] += value * keys(y - row) * keys(x - column)
    resized = resize(Tensor(picture, "HWC"), size=size, method="bicubic", antialias=False, coordinates=coordinates)
    np.testing.assert_allclose(resized.values[..., 0], reference, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(
    ("coordinates", "expected"),
    [
        ("half_pixel", [0, 2, 4]),  # centres at 0.33, 2.0, 3.67: the pixels that hold 0.83, 2.5 and 4.17
        ("asymmetric", [0, 1, 3]),  # 0, 1.67, 3.33
        ("align_corners", [0, 2, 4]),  # 0, 2, 4
    ],
)
def test_nearest_without_antialias(coordinates: str, expected: list[int]) -> None:
    row = np.arange(5, dtype=np.uint8).reshape(1, 5, 1)
    resized = resize(Tensor(row, "HWC"), size=(1, 3), method="nearest", antialias=False, coordinates=coordinates)
    assert resized.values.reshape(-1).tolist() == expected


def test_bytes_without_antialias_are_rounded_half_to_even_and_clipped() -> None:
    row = np.array([0, 1, 2, 255], np.uint8).reshape(1, 4, 1)
    halves = resize(Tensor(row, "HWC"), size=(1, 7), method="bilinear", antialias=False, coordinates="align_corners")
    assert halves.values.reshape(-1).tolist() == [0, 0, 1, 2, 2, 128, 255]  # 0.5, 1.5, 128.5
    step = np.array([0, 0, 255, 255], np.uint8).reshape(1, 4, 1)
    cubic = resize(Tensor(step, "HWC"), size=(1, 16), method="bicubic", antialias=False, coordinates="half_pixel")
    assert cubic.values.min() == 0
    assert cubic.values.max() == 255


def test_resize_refuses_what_it_cannot_do_as_asked() -> None:
    picture = Tensor(noise(4, 4, 3), "HWC")
    with pytest.raises(StepError, match="needs coordinates"):
        resize(picture, size=(2, 2), method="bilinear", antialias=False)
    with pytest.raises(StepError, match="always needs antialias"):
        resize(picture, size=(2, 2), method="lanczos", antialias=False, coordinates="half_pixel")
    with pytest.raises(StepError, match="uint8 or float32, not float64"):
        resize(Tensor(np.zeros((4, 4, 3)), "HWC"), size=(2, 2), method="bilinear", antialias=True)
    with pytest.raises(StepError, match="needs an axis H"):
        resize(Tensor(noise(4, 4, 3)), size=(2, 2), method="bilinear", antialias=True)


@pytest.mark.parametrize(
    ("shape", "arguments", "rows", "columns"),
    [
        ((7, 9), {"size": (4, 4)}, slice(1, 5), slice(2, 6)),  # offsets 1.5 and 2.5
        ((8, 8), {"fraction": 0.5}, slice(2, 6), slice(2, 6)),
        ((5, 7), {"fraction": 0.5}, slice(1, 3), slice(1, 5)),  # 2.5 goes to 2, 3.5 to 4; offsets 1.5
    ],
)
def test_center_crop_rounds_its_offsets_down(
    shape: tuple[int, int], arguments: dict[str, Any], rows: slice, columns: slice
) -> None:
    picture = noise(*shape, 3)
    np.testing.assert_array_equal(center_crop(Tensor(picture, "HWC"), **arguments).values, picture[rows, columns])
    turned = center_crop(Tensor(picture.transpose(2, 0, 1), "CHW"), **arguments)
    np.testing.assert_array_equal(turned.values, picture[rows, columns].transpose(2, 0, 1))


def test_center_crop_never_invents_pixels() -> None:
    with pytest.raises(StepError, match=r"cannot crop \[6, 3\] from a picture of \[5, 5\]"):
        center_crop(Tensor(noise(5, 5, 3), "HWC"), size=(6, 3))


def test_the_order_of_cast_and_resize_shows() -> None:
    """Before ``cast`` a resize rounds to whole numbers; after it, it does not."""
    picture = Tensor(noise(23, 37, 3), "HWC")
    size: dict[str, Any] = {"size": (10, 10), "method": "bilinear", "antialias": True}
    early = cast(resize(picture, **size), dtype="float32").values
    late = resize(cast(picture, dtype="float32"), **size).values
    assert not np.array_equal(early, late)
    np.testing.assert_allclose(early, late, atol=1.01)


@pytest.mark.parametrize("color", ["RGB", "BGR", "L"])
@pytest.mark.parametrize("exif", ["ignore", "apply"])
@pytest.mark.parametrize(
    "to",
    [{"size": [6, 11]}, {"shorter": 5}, {"shorter": 5, "rounding": "down"}, {"size": [13, 9]}],
    ids=["size", "shorter", "down", "same"],
)
def test_decoding_and_resizing_at_once_is_what_one_after_the_other_gives(
    color: str, exif: str, to: dict[str, Any], tmp_path: Path
) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    sources: list[bytes | NDArray[np.uint8]] = [
        encoded(Image.fromarray(noise(13, 9, 3)), "JPEG", exif=turned.tobytes()),
        encoded(Image.fromarray(noise(13, 9)), "JPEG"),
        encoded(Image.fromarray(noise(13, 9, 4))),
        encoded(Image.fromarray(noise(13, 9, 3)).quantize(7), "GIF"),
        noise(13, 9),
        noise(13, 9, 1),
        noise(13, 9, 3),
    ]
    first, second = {"color": color, "exif": exif}, {"method": "bicubic", "antialias": True, **to}
    steps = bind("image", [Step("decode", first), Step("resize", second)], tmp_path)
    for source in sources:
        after = resize(decode(source, color=color, exif=exif), **second)
        tensor: Any = source
        for step in steps:
            tensor = step.apply(tensor)
        np.testing.assert_array_equal(tensor.values, after.values)
        assert tensor._replace(values=after.values) == after


@pytest.mark.parametrize("color", ["RGB", "BGR", "L"])
@pytest.mark.parametrize("size", [[4, 3], [5, 7], [6, 8], [1, 1]])
@pytest.mark.parametrize("offset", [{}, {"offset": "half_even"}])
def test_cropping_inside_pillow_gives_what_cropping_an_array_gives(
    color: str, size: list[int], offset: dict[str, Any], tmp_path: Path
) -> None:
    first: dict[str, Any] = {"color": color, "exif": "ignore"}
    second: dict[str, Any] = {"method": "bilinear", "antialias": True, "size": [6, 8]}
    steps = bind(
        "image",
        [Step("decode", first), Step("resize", second), Step("center_crop", {"size": size, **offset})],
        tmp_path,
    )
    for source in (encoded(Image.fromarray(noise(13, 9, 3)), "JPEG"), noise(13, 9)):
        expected = center_crop(resize(decode(source, **first), **second), size=size, **offset)
        tensor: Any = source
        for step in steps:
            tensor = step.apply(tensor)
        np.testing.assert_array_equal(tensor.values, expected.values)
        assert tensor._replace(values=expected.values) == expected
        # The pixels that are cropped away never become an array.
        assert list(steps[0].apply(source).values.shape[:2]) == size


def test_a_crop_that_is_too_large_is_refused_by_its_own_step(tmp_path: Path) -> None:
    steps = [Step("decode", {"color": "L", "exif": "ignore"})]
    steps += [
        Step("resize", {"method": "area", "antialias": True, "size": [2, 3]}),
        Step("center_crop", {"size": [3, 3]}),
    ]
    *before, crop = bind("image", steps, tmp_path)
    tensor: Any = noise(4, 4)
    for step in before:
        tensor = step.apply(tensor)
    with pytest.raises(StepError, match=r"cannot crop \[3, 3\] from a picture of \[2, 3\]"):
        crop.apply(tensor)


def test_what_is_done_at_once_is_refused_as_by_one_after_the_other(tmp_path: Path) -> None:
    for second, message in (
        ({"method": "sinc", "size": [2, 2]}, "unknown method 'sinc'"),
        ({"method": "area"}, "size or"),
    ):
        steps = [Step("decode", {"color": "L", "exif": "ignore"}), Step("resize", {**second, "antialias": True})]
        with pytest.raises(StepError, match=message):
            bind("image", steps, tmp_path)[0].apply(noise(4, 4))


DEEP = np.array([[0, 1, 255, 256, 4095, 65535]], np.uint16)
PARTS = np.array([[-1, 0, 0.25, 0.5, 1, 300]], np.float32)


@pytest.mark.parametrize(
    ("content", "mode", "levels", "expected"),
    [
        pytest.param(encoded(Image.fromarray(DEEP)), "I;16", [0, 65535], [0, 0, 1, 1, 16, 255], id="png"),
        pytest.param(encoded(Image.fromarray(DEEP)), "I;16", [0, 4095], [0, 0, 16, 16, 255, 255], id="12-of-16-bits"),
        pytest.param(encoded(Image.fromarray(DEEP), "TIFF"), "I;16", [0, 65535], [0, 0, 1, 1, 16, 255], id="tiff"),
        pytest.param(encoded(Image.fromarray(DEEP), "PPM"), "I", [0, 65535], [0, 0, 1, 1, 16, 255], id="pgm"),
        pytest.param(
            encoded(Image.fromarray(np.array([[-200, -100, 0, 100]], np.int32)), "TIFF"), "I", [-100, 155],
            [0, 0, 100, 200], id="int32",
        ),
        pytest.param(encoded(Image.fromarray(PARTS), "TIFF"), "F", [0, 1], [0, 0, 64, 128, 255, 255], id="float"),
    ],
)  # fmt: skip
def test_decode_refuses_more_than_8_bits_until_levels_say_what_they_mean(
    content: bytes, mode: str, levels: list[float], expected: list[int]
) -> None:
    for color in ("RGB", "BGR", "L"):
        with pytest.raises(StepError, match=rf"more than 8 bits per channel \(mode {mode}\): set levels"):
            decode(content, color=color, exif="ignore")
        decoded = decode(content, color=color, exif="apply", levels=levels).values
        assert decoded.dtype == np.uint8
        assert decoded[0].T.tolist() == [expected] * decoded.shape[2]


def test_levels_take_no_value_that_is_not_a_number() -> None:
    content = encoded(Image.fromarray(np.array([[0, np.nan]], np.float32)), "TIFF")
    with pytest.raises(StepError, match="contains NaN"):
        decode(content, color="L", exif="ignore", levels=[0, 1])


def test_levels_leave_8_bits_as_they_are_and_refuse_colours_of_16() -> None:
    picture = noise(5, 7, 3)
    content = encoded(Image.fromarray(picture))
    np.testing.assert_array_equal(decode(content, color="RGB", exif="ignore", levels=[0, 65535]).values, picture)
    with pytest.raises(StepError, match="16-bit color"):
        decode(deep_png(), color="RGB", exif="ignore", levels=[0, 65535])


def test_colours_of_16_bits_keep_their_high_byte_and_those_of_ppm_are_rounded() -> None:
    portable = b"P6 2 1 65535\n" + np.array([0, 128, 257, 511, 65535, 300], ">u2").tobytes()
    assert decode(portable, color="RGB", exif="ignore").values.reshape(-1).tolist() == [0, 0, 1, 2, 255, 1]
    assert decode(deep_png(), color="RGB", exif="ignore").values.reshape(-1).tolist() == [0, 0, 1, 1, 255, 1]


def deep_png() -> bytes:
    """A PNG of two pixels with 16 bits a channel, which Pillow does not write."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    row = b"\0" + np.array([0, 255, 256, 511, 65535, 300], ">u2").tobytes()
    header = struct.pack(">IIBBBBB", 2, 1, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row)) + chunk(b"IEND", b"")


COLOURS = [[200, 100, 50], [10, 20, 30]]


@pytest.mark.parametrize(
    ("mode", "kind", "expected"),
    [
        ("1", "PNG", [[0] * 3, [0] * 3]),
        ("L", "PNG", [[124] * 3, [18] * 3]),
        ("LA", "PNG", [[124] * 3, [18] * 3]),
        ("P", "PNG", [[204, 102, 51], [0, 0, 51]]),
        ("PA", "TIFF", [[204, 102, 51], [0, 0, 51]]),
        ("RGBA", "PNG", COLOURS),
        ("RGBX", "TIFF", COLOURS),
        ("CMYK", "TIFF", COLOURS),
        ("YCbCr", "TIFF", [[199, 99, 49], [9, 20, 28]]),
    ],
)
def test_decode_of_each_mode_of_8_bits(mode: str, kind: str, expected: list[list[int]]) -> None:
    """What docs/reference/steps.md says of each: bilevel, grey, palette, with alpha, inks, luminance and chroma."""
    picture = Image.fromarray(np.array([COLOURS], np.uint8))
    picture = picture.convert("P").convert("PA") if mode == "PA" else picture.convert(mode, dither=Image.Dither.NONE)
    content = encoded(picture, kind)
    assert decode(content, color="RGB", exif="ignore").values[0].tolist() == expected


def test_decode_makes_lab_of_srgb_and_says_what_it_cannot() -> None:
    colours = Image.fromarray(np.array([COLOURS], np.uint8))
    spaces = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    picture = ImageCms.profileToProfile(colours, spaces[0], spaces[1], outputMode="LAB")
    assert picture is not None
    content = encoded(picture, "TIFF")
    assert np.abs(decode(content, color="RGB", exif="ignore").values[0].astype(int) - COLOURS).max() <= 1
    with pytest.raises(ValueError, match="LAB"):
        decode(content, color="L", exif="ignore")


def torchvision_size(height: int, width: int, shorter: int) -> tuple[int, int]:
    """The output size that torchvision's ``_compute_resized_output_size`` documents: the longer side is truncated."""
    short, long = (width, height) if width <= height else (height, width)
    other = int(shorter * long / short)
    return (other, shorter) if width <= height else (shorter, other)


def torchvision_crop(height: int, width: int, size: int) -> tuple[int, int]:
    """The top left corner of torchvision's ``center_crop``: Python's ``round`` of half of what is left."""
    return int(round((height - size) / 2.0)), int(round((width - size) / 2.0))  # noqa: RUF046 - as published


def test_the_arguments_of_torchvision_give_its_pixels_for_random_sizes(tmp_path: Path) -> None:
    """Resize(32), CenterCrop(27) by the published rules and Pillow's resampling, on a thousand sizes."""
    random = np.random.default_rng(11)
    resizing: dict[str, Any] = {"shorter": 32, "rounding": "down", "method": "bilinear", "antialias": True}
    steps = [
        Step("decode", {"color": "RGB", "exif": "ignore"}),
        Step("resize", resizing),
        Step("center_crop", {"size": [27, 27], "offset": "half_even"}),
    ]
    bound = bind("image", steps, tmp_path)
    otherwise = 0
    for height, width in random.integers(20, 120, (1000, 2)).tolist():
        picture = Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        rows, columns = torchvision_size(height, width, 32)
        top, left = torchvision_crop(rows, columns, 27)
        expected = picture.resize((columns, rows), Image.Resampling.BILINEAR).crop((left, top, left + 27, top + 27))
        tensor: Any = np.asarray(picture)
        for step in bound:
            tensor = step.apply(tensor)
        np.testing.assert_array_equal(tensor.values, np.asarray(expected))
        one_by_one = decode(np.asarray(picture), color="RGB", exif="ignore")
        assert resize(one_by_one, **resizing).values.shape[:2] == (rows, columns)
        without = resize(one_by_one, shorter=32, method="bilinear", antialias=True)
        otherwise += not np.array_equal(center_crop(without, size=(27, 27)).values, np.asarray(expected))
    assert otherwise > 250  # the rules differ for many sizes, so equality is not by chance


def test_a_crop_with_torchvisions_offset_is_followed_back_to_the_original() -> None:
    whole = decode(noise(9, 11, 3), color="RGB", exif="ignore")
    cropped = center_crop(whole, size=(4, 4), offset="half_even")  # offsets 2.5 and 3.5
    np.testing.assert_array_equal(cropped.values, whole.values[2:6, 4:8])
    assert cropped.geometry is not None
    assert cropped.geometry.to_original(np.array([0.0, 0.0])).tolist() == [4.0, 2.0]


def test_an_unknown_rounding_is_refused() -> None:
    picture = Tensor(noise(5, 5, 3), "HWC")
    with pytest.raises(StepError, match="unknown rounding 'up'"):
        center_crop(picture, size=(2, 2), offset="up")
    with pytest.raises(StepError, match="unknown rounding 'up'"):
        resize(picture, shorter=2, method="bilinear", antialias=True, rounding="up")


def test_postscript_is_handed_to_no_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow would run Ghostscript of the host on a file that a dataset's author wrote."""
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_, **__: pytest.fail("Ghostscript was started"))
    picture = Image.new("L", (4, 4))
    content = encoded(picture, "EPS")
    with pytest.raises(StepError, match="PostScript, which is a program"):
        decode(content, color="L", exif="ignore")
    with pytest.raises(ValueError, match=r"mask\.png: a mask must not be PostScript"):
        read_mask(io.BytesIO(content), "mask.png")
