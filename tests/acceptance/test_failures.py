"""Runs that fail, of the real ONNX Runtime: each recorded with its class, nothing left, the next one unharmed."""

import json
import struct
import subprocess
import time
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto

from tests.support.api.commands import Commands
from tests.support.registry import graphs
from tests.support.registry.digits import DIGITS, GRAPH, locked, model, request, written
from tests.support.servers.faulty_proxy import proxy_to
from tests.support.system.remains import containers, remains

pytestmark = [pytest.mark.engine, pytest.mark.image]


@pytest.fixture(scope="module")
def folder(registry: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where manifests lie that are published: a model that is well, several that are not, a picture that is none."""
    folder = tmp_path_factory.mktemp("failures")
    given: graphs.Ports = {"input": (TensorProto.FLOAT, ["n", 1, 8, 8])}
    scores: graphs.Ports = {"scores": (TensorProto.FLOAT, ["n", 10])}
    onnx.save(graphs.model(given, scores, operation="Nonsense"), folder / "nonsense.onnx")
    loose = graphs.loosened(GRAPH, folder / "loose.onnx")
    models = [
        model("well"),
        model("nonsense", graph=folder / "nonsense.onnx"),
        model("huge", graph=loose, shape=[None, 1, 16384, 16384], steps=_steps(size=16384)),
        model(
            "misshapen",
            graph=graphs.demanding(folder / "demanding.onnx"),
            shape=[None, 1, 16, 16],
            steps=_steps(size=16),
        ),
    ]
    manifests = [written(folder / f"{one['name']}.yaml", one) for one in models]
    registry.done("publish", DIGITS / "dataset.yaml", *manifests, _broken_pictures(folder))
    return folder


def _steps(size: int) -> list[dict[str, Any]]:
    return [
        {"decode": {"color": "L", "exif": "ignore"}},
        {"resize": {"size": [size, size], "method": "bilinear", "antialias": True}},
        {"cast": {"dtype": "float32"}},
        {"transpose": {"layout": "NCHW"}},
    ]


def _broken_pictures(folder: Path) -> Path:
    """The manifest of a dataset of three pictures, the second of which breaks off."""
    pictures = folder / "pictures"
    pictures.mkdir()
    whole = _png(8)
    for name, content in (("first", whole), ("second", whole[: len(whole) // 2]), ("third", whole)):
        (pictures / f"{name}.png").write_bytes(content)
    (pictures / "index.csv").write_text("path,label\nfirst.png,1\nsecond.png,2\nthird.png,3\n")
    document = {
        "schema": 1,
        "kind": "dataset",
        "name": "broken",
        "version": "1.0.0",
        "license": "CC0-1.0",
        "format": "image-index",
        "splits": {"test": {"index": "pictures/index.csv", "samples": 3}},
        "files": [{"path": "pictures/", "source": "./pictures"}],
    }
    return written(folder / "broken.yaml", document)


def _png(size: int) -> bytes:
    """A grey square (PNG, section 11.2: 8 bits, one channel)."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * size) * size)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def failed(registry: Commands, lock: Path, isolation: str) -> dict[str, Any]:
    """The failure of a run that must fail: told, recorded, and all that it leaves."""
    failure: dict[str, Any] = failed_run(registry, lock, isolation)["end"]
    return failure


def failed_run(registry: Commands, lock: Path, isolation: str) -> dict[str, Any]:
    """The run of which ``failed`` tells the failure."""
    answer = registry.call("run", lock, "--isolation", isolation)
    run = answer.document
    assert (answer.code, run["end"]["outcome"], run["start"]["isolation"], run["end"]["metrics"]) == (
        1,
        "failed",
        isolation,
        [],
    ), answer
    assert "Traceback" not in answer.stderr
    assert remains(registry) == []
    recorded = registry.done("show", run["run"])
    assert recorded["end"] == run["end"]
    return run


BOTH = pytest.mark.parametrize("isolation", ["container", "process"])


def test_a_graph_of_what_the_framework_does_not_know(registry: Commands, folder: Path) -> None:
    failure = failed(registry, locked(registry, folder, request("nonsense")), "process")
    assert failure["failure_class"] == "load"
    assert "digits.onnx" in failure["failure_message"]


def test_a_picture_that_breaks_off(registry: Commands, folder: Path) -> None:
    failure = failed(registry, locked(registry, folder, request("well", "broken")), "process")
    assert failure["failure_class"] == "step"
    assert "second.png" in failure["failure_message"]


@BOTH
def test_more_time_than_the_limit(registry: Commands, folder: Path, isolation: str) -> None:
    failure = failed(registry, locked(registry, folder, request("well", time="1s", duration="10s")), isolation)
    assert failure["failure_class"] == "timeout"
    assert "1 s" in failure["failure_message"]


def test_more_memory_than_the_limit(registry: Commands, folder: Path) -> None:
    """The harness and ONNX Runtime have room in the limit, and the tensor that the model's steps make has not."""
    failure = failed(registry, locked(registry, folder, request("huge", memory="256MiB")), "container")
    assert failure["failure_class"] == "out-of-memory"
    assert "limit" in failure["failure_message"]


def test_more_queries_than_loadgen_can_keep(registry: Commands, folder: Path) -> None:
    failure = failed(registry, locked(registry, folder, request("well", duration="10h")), "process")
    assert failure["failure_class"] == "loadgen-invalid"
    assert "lower min_duration (36000 s)" in failure["failure_message"]


def test_an_engine_that_is_lost_while_a_run_lasts(registry: Commands, folder: Path) -> None:
    lock = locked(registry, folder, request("well", duration="60s"))
    with proxy_to(Path(registry.engine.removeprefix("unix://"))) as proxy:
        behind = replace(registry, engine=f"tcp://127.0.0.1:{proxy.port}")
        command = subprocess.Popen(
            behind.command("run", lock), env=behind.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        while command.poll() is None and not containers(registry):
            time.sleep(0.2)
        proxy.close()
        answer, _ = command.communicate(timeout=120)
    assert (command.returncode, json.loads(answer)["error"]["code"]) == (5, "unavailable")
    recorded = registry.done("runs", "--limit", "1")["runs"][0]
    assert (recorded["end"]["outcome"], recorded["end"]["failure_class"]) == ("failed", "engine")
    # The next command that finds the engine again removes what is left of it.
    assert registry.done("run", locked(registry, folder, request("well")))["end"]["outcome"] == "done"
    assert remains(registry) == []


@BOTH
def test_the_run_after_tensors_that_the_graph_does_not_take_is_unharmed(
    registry: Commands, folder: Path, isolation: str
) -> None:
    failure = failed(registry, locked(registry, folder, request("misshapen")), isolation)
    assert failure["failure_class"] == "predict"
    assert "MatMul" in failure["failure_message"]
    lock = locked(registry, folder, request("well"))
    run = registry.done("run", lock, "--isolation", isolation)
    top1 = next(metric for metric in run["end"]["metrics"] if metric["name"] == "top1")
    assert (run["end"]["outcome"], top1["n"]) == ("done", 359)
    assert top1["value"] > 0.9
    assert remains(registry) == []
    assert registry.done("verify")["damaged"] == []
