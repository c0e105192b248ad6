"""Scripts that run inside an image, with the harness's own modules; they are in ``inside``."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.harness_archive import build_harness
from benchlock.evaluator.runner.container_engine import Confinement, Engine, Mount
from benchlock.evaluator.runner.container_run import provide_image
from benchlock.registry.lock.lockfile import load
from tests.support.api.commands import Commands
from tests.support.registry.digits import DIGITS

INSIDE = Path(__file__).parent / "inside"
Found = dict[str, Any]


def inside(images: Commands, model: str, script: str, folder: Path) -> Found:
    """What a script finds in the image that the example's ``model`` is locked to; ``folder`` holds its files."""
    manifest, request = (DIGITS / kind / f"{model}.yaml" for kind in ("models", "requests"))
    for path in (DIGITS / "dataset.yaml", manifest):
        images.call("publish", path)  # another module may have published it
    lock = folder.parent / f"{script}.lock"
    images.done("lock", request, "-o", lock)
    platform = load(lock.read_text(), str(lock)).image.platforms[0]
    scripts = folder.parent / f"{script}-scripts"
    shutil.copytree(INSIDE, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    (scripts / "harness.pyz").write_bytes(build_harness())
    for path, mode in ((scripts, 0o755), (folder, 0o777), *((file, 0o644) for file in folder.iterdir())):
        path.chmod(mode)
    engine = Engine.connect(images.engine)
    assert engine is not None
    image = provide_image(platform, engine, LocalStore(images.registry / "blobs"), SILENT)
    said: list[bytes] = []
    what = Confinement(
        run=f"formats-{script}",
        image=image.id,
        command=(f"python{platform.python}", "-B", f"/scripts/{script}.py", "/scripts/harness.pyz", "/models"),
        mounts=(Mount(scripts, "/scripts"), Mount(folder, "/models", writable=True)),
        environment={"TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"},
        user="65534:65534",
        memory=3 << 30,
        scratch=1 << 30,
        processes=256,
        cpus=(min(os.sched_getaffinity(0)),),
    )
    try:
        ended = engine.start(what, lambda output, error: said.append(output + error)).wait(300)
    finally:
        engine.remove(what.run)
        engine.close()
    assert ended is not None, b"".join(said)
    assert ended.code == 0, b"".join(said).decode()
    found: Found = json.loads((folder / "found.json").read_bytes())
    return found
