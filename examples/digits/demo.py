"""The main job in one go: publish, lock, run, rerun, trace, report. Every step is a `benchlock` command."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
REGISTRY = ROOT / ".demo" / "registry"
LOCKS = ROOT / ".demo" / "locks"
REPORT = ROOT / ".demo" / "report"
BENCHLOCK = Path(sys.executable).parent / "benchlock"

FRAMEWORKS = {"onnxruntime": "onnxruntime==1.31.1", "litert": "litert==2.3.0"}
MORE_FRAMEWORKS = {"pytorch": "pytorch==2.13.0", "tensorflow": "tensorflow==2.21.0"}
MODELS = {
    "onnxruntime": ["digits-onnx"],
    "litert": ["digits-litert"],
    "pytorch": ["digits-torchscript", "digits-torch-export"],
    "tensorflow": ["digits-savedmodel", "digits-keras"],
}
TRACED = "digits-onnx-traced"
"""The request of a batch sweep with a trace of layers, for the report."""
WITH_CODE = ("digits-torch-export",)
"""Models whose files are code for their framework; without an engine they need leave to run."""
COLUMNS = ("model", "framework", "isolation", "top-1", "p50", "p99", "samples/s", "times")


def benchlock(*words: str | Path, refused: bool = False) -> Any:  # noqa: ANN401 - a JSON document
    """Run one command, shown as a user would type it; its JSON answer. ``refused`` accepts exit code 1."""
    print(f"$ benchlock {shlex.join(shown(word) for word in words)}", flush=True)
    command = [BENCHLOCK, "--registry", REGISTRY, "--json", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in ((0, 1) if refused else (0,)):
        print(done.stdout)
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def shown(word: str | Path) -> str:
    return str(word.relative_to(ROOT)) if isinstance(word, Path) else word


def use_private_engine() -> None:
    """`make engine` starts one in .engine; an engine that DOCKER_HOST names goes first."""
    socket = ROOT / ".engine" / "docker.sock"
    if "DOCKER_HOST" not in os.environ and socket.exists():
        os.environ["DOCKER_HOST"] = f"unix://{socket}"


def has_image(framework: str, version: str, *, layers: bool) -> bool:
    """Whether an image of exactly that framework version is published, with layers if containers can run."""
    images = benchlock("list", "image")["artifacts"]
    for image in images:
        if image["name"] != f"{framework}-cpu":
            continue
        manifest = benchlock("show", f"image/{image['name']}@{image['version']}")["manifest"]
        fits = manifest["provides"] == {"framework": framework, "version": version}
        if fits and (not layers or all("layers" in platform for platform in manifest["platforms"])):
            return True
    return False


def evaluate(requests: Sequence[str]) -> list[dict[str, Any]]:
    """Lock and run each request, which is named after its model; the runs as the command printed them."""
    runs = []
    for model in requests:
        lock = LOCKS / f"{model}.lock"
        lock.unlink(missing_ok=True)  # a lock that is there keeps its choices; the demo wants the newest image
        benchlock("lock", HERE / "requests" / f"{model}.yaml", "-o", lock)
        allowed = ["--allow-code"] if model in WITH_CODE else []
        runs.append(benchlock("run", lock, *allowed) | {"model": model, "lock_path": lock})
    return runs


def row(run: dict[str, Any]) -> tuple[str, ...]:
    value = {metric["name"]: metric["value"] for metric in run["end"]["metrics"]}
    return (
        run["model"],
        f"{run['framework']['name']} {run['framework']['version']}",
        run["start"]["isolation"],
        f"{value['top1']:.2%}",
        f"{value['latency_p50'] * 1e6:.0f} µs",
        f"{value['latency_p99'] * 1e6:.0f} µs",
        f"{value['throughput']:.0f}",
        "one run" if run["times_unusable"] is None else "unusable",
    )


def print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    for line in (COLUMNS, ["-" * width for width in widths], *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def main() -> None:
    """Everything, and how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="PyTorch and TensorFlow too")
    frameworks = FRAMEWORKS | (MORE_FRAMEWORKS if parser.parse_args().all else {})
    started = time.monotonic()
    LOCKS.mkdir(parents=True, exist_ok=True)
    use_private_engine()

    benchlock("db", "create")
    engine = benchlock("doctor", refused=True)["engine"]
    if engine is None:
        print("No Docker engine answers, so the runs are processes. `make engine` starts a private one (Debian, root).")
    for framework, wanted in frameworks.items():
        if not has_image(framework, wanted.partition("==")[2], layers=engine is not None):
            benchlock("image", "build", wanted, *([] if engine else ["--no-layers"]))
    models = [model for framework in frameworks for model in MODELS[framework]]
    benchlock("publish", HERE / "dataset.yaml", *(HERE / "models" / f"{model}.yaml" for model in models))

    runs = evaluate(models)
    print()
    print_table([row(run) for run in runs])
    for run in runs:
        if run["times_unusable"] is not None:
            print(f"{run['model']}: {run['times_unusable']}")
    print("Times are of one run each, which decides nothing about them: `run --repeat`, `compare --interleave`.")
    print()
    verdict = benchlock("rerun", runs[0]["lock_path"], refused=True)
    print(f"\n{runs[0]['model']}: {verdict['verdict']}, predictions {verdict['predictions']}")
    for reason in verdict["reasons"]:
        print(f"  {reason}")
    print()
    traced = evaluate([TRACED])
    benchlock("inspect", traced[0]["start"]["id"], "--analysis", "A14", "--roof")
    report = benchlock("report", *(run["start"]["id"] for run in (*runs, *traced)), "-o", REPORT)
    print("\nThe report states which layer costs most, what bounds it, which batch to use, and what tracing cost.")
    print(f"done in {time.monotonic() - started:.0f} s\nreport: {report['page']}")
    print("The same in the browser: serve it, then open http://127.0.0.1:8080")
    print(f"$ benchlock --registry {shown(REGISTRY)} serve --open")


if __name__ == "__main__":
    main()
