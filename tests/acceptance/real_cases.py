"""Real models and data as an author would publish them: manifests and requests, and what is known of the answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NETWORKS = Path(__file__).parent / "networks"
RESNET20, RESNET8, MOBILENET = ("resnet20.py", "blocks.py"), ("resnet8.py",), ("mobilenet.py",)
"""The code of networks; the first file has the function ``build``."""

RESNET8_STEPS: list[dict[str, Any]] = [{"decode": {"color": "RGB", "exif": "ignore"}}, {"cast": {"dtype": "float32"}}]
MOBILENET_STEPS: list[dict[str, Any]] = [
    {"decode": {"color": "RGB", "exif": "ignore"}},
    {"resize": {"shorter": 256, "method": "bilinear", "antialias": True}},
    {"center_crop": {"size": [224, 224]}},
    {"cast": {"dtype": "float32"}},
    {"normalize": {"mean": [127.5, 127.5, 127.5], "std": [127.5, 127.5, 127.5]}},
]
MNIST_STEPS: list[dict[str, Any]] = [{"decode": {"color": "L", "exif": "ignore"}}, {"cast": {"dtype": "float32"}}]
RESNET20_STEPS: list[dict[str, Any]] = [
    *RESNET8_STEPS,
    {"scale": {"factor": 1 / 255}},
    {"normalize": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}},
]
BYTES_STEPS: list[dict[str, Any]] = [
    *RESNET8_STEPS[:1],
    {"quantize": {"scale": 1, "zero_point": -128, "dtype": "int8"}},
]
TO_NCHW: list[dict[str, Any]] = [{"transpose": {"layout": "NCHW"}}]


@dataclass(frozen=True, slots=True)
class Case:
    """A model file of the cases folder, its manifest, and how many answers are right (top-1, top-5)."""

    name: str
    framework: str
    format: str
    file: str
    expected: str
    dataset: str
    correct: tuple[int, int]
    samples: int
    ports: Mapping[str, Any]
    signature: str | None = None
    code: tuple[str, ...] = ()

    @property
    def is_tree(self) -> bool:
        return self.format == "savedmodel"

    def manifest(self) -> dict[str, Any]:
        """The model's manifest; the file lies beside it under its own name."""
        document = {
            "schema": 1,
            "kind": "model",
            "name": self.name,
            "version": "1.0.0",
            "license": "Apache-2.0",
            "task": "image-classification",
            "framework": {"name": self.framework, "version": "*"},
            "format": self.format,
            **self.ports,
            "files": [self._file(), *self._code()],
        }
        document |= {"signature": self.signature} if self.signature else {}
        return document | ({"code": {"file": self.code[0], "function": "build"}} if self.code else {})

    def _file(self) -> dict[str, str]:
        own = self.file.split("/")[-1]
        role = "weights" if self.code else "graph"
        return {"path": "model/" if self.is_tree else own, "role": role, "source": f"./{own}"}

    def _code(self) -> list[dict[str, str]]:
        """The code, where weights need it, which lies beside them."""
        return [{"path": name, "role": "code", "source": f"./{name}"} for name in self.code]

    def request(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "kind": "evaluation",
            "name": self.name,
            "model": {"name": self.name, "version": "^1.0"},
            "dataset": {"name": self.dataset.replace("_", "-"), "version": "^1.0", "split": "dev"},
            "hardware": {"os": "linux", "arch": "amd64", "device": "cpu"},
            "limits": {"time": "10m", "memory": "3GiB", "cpus": 1, "processes": 256},
            "scenario": {"name": "single_stream", "min_queries": 64, "min_duration": "100ms", "warmup": 4},
            "metrics": ["top1", "top5", "latency", "throughput"],
            "seed": 7,
        }


def ports(
    name: str,
    output: str,
    shape: list[int | None],
    layout: str,
    steps: list[dict[str, Any]],
    *,
    offset: int = 0,
    batch_axis: int | None = None,
    dtype: str = "float32",
) -> dict[str, Any]:
    """Inputs and outputs of a manifest."""
    given: dict[str, Any] = {"name": name, "type": "image", "dtype": dtype, "shape": shape, "layout": layout}
    given["steps"] = [*steps, *(TO_NCHW if layout == "NCHW" else [])]
    if batch_axis is not None:
        given["batch_axis"] = batch_axis
    return {
        "inputs": [given],
        "outputs": [{"name": output, "type": "class-scores", "dtype": dtype, "label_offset": offset}],
    }


def _resnet8(
    name: str, framework: str, form: str, file: str, given: dict[str, Any], signature: str | None = None
) -> Case:
    # The tensors of the safetensors file are those of the TorchScript one.
    code = RESNET8 if form == "safetensors" else ()
    expected = f"resnet8_cifar10__{'resnet8.torchscript.pt' if code else file}@cifar10_jpeg_dev.npz"
    correct = (752, 981) if "int8" in file else (751, 986)
    path = f"resnet8_cifar10/{file}"
    return Case(name, framework, form, path, expected, "cifar10_jpeg", correct, 1000, given, signature, code)


def _resnet20(name: str, framework: str, form: str, file: str, given: dict[str, Any]) -> Case:
    # The tensors of the safetensors file are the checkpoint's.
    answers = "resnet20-12fca82f.th" if form == "safetensors" else file
    expected = f"resnet20_cifar10__{answers}@cifar10_jpeg_dev.npz"
    code = RESNET20 if form in ("safetensors", "state-dict") else ()
    path, correct = f"resnet20_cifar10/{file}", (804, 990)
    return Case(name, framework, form, path, expected, "cifar10_jpeg", correct, 1000, given, code=code)


def _mobilenet(name: str, framework: str, form: str, file: str, given: dict[str, Any]) -> Case:
    # The tensors of the checkpoint are those of the TorchScript file.
    code = MOBILENET if form == "state-dict" else ()
    answers = "mobilenet_v1_0.25_224.torchscript.pt" if code else file
    expected = f"mobilenet_v1_025_224__{answers}@imagenet_sample_dev.npz"
    correct = (60, 82) if "quant" in file else (61, 84)
    path = f"mobilenet_v1_025_224/{file}"
    return Case(name, framework, form, path, expected, "imagenet_sample", correct, 104, given, code=code)


def _mnist(name: str, file: str) -> Case:
    given = ports("Input3", "Plus214_Output_0", [1, 1, 28, 28], "NCHW", MNIST_STEPS, batch_axis=0)
    expected = f"mnist_cntk__{file}@mnist_t10k_dev.npz"
    path = f"mnist_cntk/{file}"
    return Case(name, "onnxruntime", "onnx", path, expected, "mnist_t10k", (9891, 10000), 10000, given)


_NHWC: list[int | None] = [None, 32, 32, 3]
_NCHW: list[int | None] = [None, 3, 32, 32]
_ONE: list[int | None] = [1, 32, 32, 3]
_BIG: list[int | None] = [1, 224, 224, 3]
_BIG_NCHW: list[int | None] = [None, 3, 224, 224]
_SCORES = "MobilenetV1/Predictions/Reshape_1"

CASES = (
    _resnet8("resnet8-onnx-nhwc", "onnxruntime", "onnx", "resnet8_float.tf2onnx.onnx",
             ports("input_1", "Identity", _NHWC, "NHWC", RESNET8_STEPS)),
    _resnet8("resnet8-onnx-nchw", "onnxruntime", "onnx", "resnet8.nchw.onnx",
             ports("input", "probs", _NCHW, "NCHW", RESNET8_STEPS)),
    _resnet8("resnet8-torchscript", "pytorch", "torchscript", "resnet8.torchscript.pt",
             ports("x", "probs", _NCHW, "NCHW", RESNET8_STEPS)),
    _resnet8("resnet8-savedmodel", "tensorflow", "savedmodel", "resnet8_savedmodel",
             ports("input_1", "output_0", _NHWC, "NHWC", RESNET8_STEPS), "serving_default"),
    _resnet8("resnet8-keras", "tensorflow", "keras", "resnet8.keras",
             ports("input_1", "scores", _NHWC, "NHWC", RESNET8_STEPS)),
    _resnet8("resnet8-tflite", "litert", "tflite", "resnet8_float.tflite",
             ports("input_1", "Identity", _ONE, "NHWC", RESNET8_STEPS, batch_axis=0)),
    _resnet8("resnet8-tflite-tf", "tensorflow", "tflite", "resnet8_float.tflite",
             ports("input_1", "Identity", _ONE, "NHWC", RESNET8_STEPS, batch_axis=0)),
    _resnet8("resnet8-tflite-int8", "litert", "tflite", "resnet8_int8.tflite",
             ports("input_1_int8", "Identity_int8", _NHWC, "NHWC", BYTES_STEPS, dtype="int8")),
    _resnet8("resnet8-tflite-int8-tf", "tensorflow", "tflite", "resnet8_int8.tflite",
             ports("input_1_int8", "Identity_int8", _NHWC, "NHWC", BYTES_STEPS, dtype="int8")),
    _resnet8("resnet8-safetensors", "pytorch", "safetensors", "resnet8.safetensors",
             ports("x", "probs", _NCHW, "NCHW", RESNET8_STEPS)),
    _resnet8("resnet8-h5", "tensorflow", "hdf5", "resnet8.h5",
             ports("input_1", "scores", _NHWC, "NHWC", RESNET8_STEPS)),
    _resnet8("resnet8-frozen", "tensorflow", "frozen-graph", "resnet8_frozen.pb",
             ports("input:0", "Identity:0", _NHWC, "NHWC", RESNET8_STEPS)),
    _mobilenet("mobilenet-onnx", "onnxruntime", "onnx", "mobilenet_v1_0.25_224_float.tf2onnx.onnx",
               ports("input", _SCORES, _BIG, "NHWC", MOBILENET_STEPS, offset=1, batch_axis=0)),
    _mobilenet("mobilenet-tflite", "litert", "tflite", "mobilenet_v1_0.25_224_float.tflite",
               ports("input", _SCORES, _BIG, "NHWC", MOBILENET_STEPS, offset=1, batch_axis=0)),
    _mobilenet("mobilenet-onnx-nchw", "onnxruntime", "onnx", "mobilenet_v1_0.25_224.nchw.onnx",
               ports("input", "probs", _BIG_NCHW, "NCHW", MOBILENET_STEPS, offset=1)),
    _mobilenet("mobilenet-torchscript", "pytorch", "torchscript", "mobilenet_v1_0.25_224.torchscript.pt",
               ports("x", "probs", _BIG_NCHW, "NCHW", MOBILENET_STEPS, offset=1)),
    _mobilenet("mobilenet-checkpoint", "pytorch", "state-dict", "mobilenet_v1_0.25_224.state_dict.pth",
               ports("x", "probs", _BIG_NCHW, "NCHW", MOBILENET_STEPS, offset=1)),
    _mobilenet("mobilenet-tflite-uint8", "litert", "tflite", "mobilenet_v1_0.25_224_quant.tflite",
               ports("input", _SCORES, _BIG, "NHWC", MOBILENET_STEPS[:3], offset=1, batch_axis=0, dtype="uint8")),
    _resnet20("resnet20-onnx", "onnxruntime", "onnx", "resnet20.onnx",
              ports("input", "logits", _NCHW, "NCHW", RESNET20_STEPS)),
    _resnet20("resnet20-torchscript", "pytorch", "torchscript", "resnet20.torchscript.pt",
              ports("x", "logits", _NCHW, "NCHW", RESNET20_STEPS)),
    _resnet20("resnet20-checkpoint", "pytorch", "state-dict", "resnet20-12fca82f.th",
              ports("x", "logits", _NCHW, "NCHW", RESNET20_STEPS)),
    _resnet20("resnet20-safetensors", "pytorch", "safetensors", "resnet20.safetensors",
              ports("x", "logits", _NCHW, "NCHW", RESNET20_STEPS)),
    _mnist("mnist-onnx", "mnist.onnx"),
    _mnist("mnist-onnx-simplified", "opt-mnist.onnx"),
)  # fmt: skip

DATASETS: dict[str, dict[str, Any]] = {
    "cifar10_jpeg": {
        "format": "image-index",
        "splits": {"dev": {"index": "images/index.csv", "samples": 1000}},
        "labels": "images/labels.txt",
        "files": [{"path": "images/", "source": "./cifar10_jpeg"}],
    },
    "imagenet_sample": {
        "format": "image-index",
        "splits": {"dev": {"index": "images/index.csv", "samples": 104}},
        "files": [{"path": "images/", "source": "./imagenet_sample"}],
    },
    "mnist_t10k": {
        "format": "idx",
        "splits": {
            "dev": {
                "images": "data/t10k-images-idx3-ubyte.gz",
                "labels": "data/t10k-labels-idx1-ubyte.gz",
                "samples": 10000,
            }
        },
        "files": [{"path": "data/", "source": "./mnist_t10k"}],
    },
}


def dataset_manifest(name: str) -> dict[str, Any]:
    """The manifest of a dataset whose folder lies beside it."""
    header = {"schema": 1, "kind": "dataset", "name": name.replace("_", "-"), "version": "1.0.0", "license": "various"}
    return header | DATASETS[name]
