"""Real models and data as an author would publish them: manifests and requests, and what is known of the answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

RESNET8_STEPS: list[dict[str, Any]] = [{"decode": {"color": "RGB", "exif": "ignore"}}, {"cast": {"dtype": "float32"}}]
MOBILENET_STEPS: list[dict[str, Any]] = [
    {"decode": {"color": "RGB", "exif": "ignore"}},
    {"resize": {"shorter": 256, "method": "bilinear", "antialias": True}},
    {"center_crop": {"size": [224, 224]}},
    {"cast": {"dtype": "float32"}},
    {"normalize": {"mean": [127.5, 127.5, 127.5], "std": [127.5, 127.5, 127.5]}},
]
MNIST_STEPS: list[dict[str, Any]] = [{"decode": {"color": "L", "exif": "ignore"}}, {"cast": {"dtype": "float32"}}]
TO_NCHW: list[dict[str, Any]] = [{"transpose": {"layout": "NCHW"}}]


@dataclass(frozen=True, slots=True)
class Case:
    """A model file of the cases folder, how its manifest describes it, and how many answers are right."""

    name: str
    framework: str
    format: str
    file: str
    expected: str
    dataset: str
    correct: int
    samples: int
    ports: Mapping[str, Any]
    signature: str | None = None

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
            "files": [
                {
                    "path": "model/" if self.is_tree else self.file.split("/")[-1],
                    "role": "graph",
                    "source": f"./{self.file.split('/')[-1]}",
                }
            ],
        }
        return document | ({"signature": self.signature} if self.signature else {})

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
) -> dict[str, Any]:
    """Inputs and outputs of a manifest."""
    given: dict[str, Any] = {"name": name, "type": "image", "dtype": "float32", "shape": shape, "layout": layout}
    given["steps"] = [*steps, *(TO_NCHW if layout == "NCHW" else [])]
    if batch_axis is not None:
        given["batch_axis"] = batch_axis
    return {
        "inputs": [given],
        "outputs": [{"name": output, "type": "class-scores", "dtype": "float32", "label_offset": offset}],
    }


def _resnet8(
    name: str, framework: str, form: str, file: str, given: dict[str, Any], signature: str | None = None
) -> Case:
    expected = f"resnet8_cifar10__{file}@cifar10_jpeg_dev.npz"
    return Case(name, framework, form, f"resnet8_cifar10/{file}", expected, "cifar10_jpeg", 751, 1000, given, signature)


def _mobilenet(name: str, framework: str, form: str, file: str, given: dict[str, Any]) -> Case:
    expected = f"mobilenet_v1_025_224__{file}@imagenet_sample_dev.npz"
    return Case(name, framework, form, f"mobilenet_v1_025_224/{file}", expected, "imagenet_sample", 61, 104, given)


_NHWC: list[int | None] = [None, 32, 32, 3]
_NCHW: list[int | None] = [None, 3, 32, 32]
_BIG: list[int | None] = [1, 224, 224, 3]
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
             ports("input_1", "Identity", [1, 32, 32, 3], "NHWC", RESNET8_STEPS, batch_axis=0)),
    _resnet8("resnet8-tflite-tf", "tensorflow", "tflite", "resnet8_float.tflite",
             ports("input_1", "Identity", [1, 32, 32, 3], "NHWC", RESNET8_STEPS, batch_axis=0)),
    _mobilenet("mobilenet-onnx", "onnxruntime", "onnx", "mobilenet_v1_0.25_224_float.tf2onnx.onnx",
               ports("input", _SCORES, _BIG, "NHWC", MOBILENET_STEPS, offset=1, batch_axis=0)),
    _mobilenet("mobilenet-tflite", "litert", "tflite", "mobilenet_v1_0.25_224_float.tflite",
               ports("input", _SCORES, _BIG, "NHWC", MOBILENET_STEPS, offset=1, batch_axis=0)),
    Case("mnist-onnx", "onnxruntime", "onnx", "mnist_cntk/mnist.onnx", "mnist_cntk__mnist.onnx@mnist_t10k_dev.npz",
         "mnist_t10k", 9891, 10000,
         ports("Input3", "Plus214_Output_0", [1, 1, 28, 28], "NCHW", MNIST_STEPS, batch_axis=0)),
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
