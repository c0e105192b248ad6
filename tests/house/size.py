"""The size of the code: its modules and lines, and how many functions a publication and a GET pass through.

``python -m tests.house.size`` prints each number beside its limit, and fails where one is above it.
"""

import asyncio
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from litestar.testing import AsyncTestClient

from benchlock.api.cli.main import run
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.service_settings import Settings
from benchlock.api.local.local_registry import open_registry

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("api", "artifacts", "evaluator", "migrations", "registry")
LIMITS: Final = {
    "modules": 400,
    "lines": 74_750,
    "functions of publishing a dataset of two files": 360,
    "functions of the first GET of a version": 60,
}
"""Slightly above what was measured when each limit was last set. The goals are 400, 68,121, 200 and 35."""
OK: Final = 200
DATASET: Final = """\
schema: 1
kind: dataset
name: two
version: 1.0.0
license: MIT
format: idx
splits: {test: {images: test-images.idx, labels: test-labels.idx, samples: 359}}
files:
  - {path: test-images.idx, source: ./test-images.idx}
  - {path: test-labels.idx, source: ./test-labels.idx}
"""


class Calls:
    """The functions of the packages that are called while ``called`` is a set, in every thread that starts later."""

    def __init__(self) -> None:
        self.called: set[CodeType] | None = None
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if self.called is not None and event == "call" and not code.co_name.startswith("<"):
            self.called.add(code)

    @contextmanager
    def collect(self) -> Iterator[set[str]]:
        """Collect their names."""
        names: set[str] = set()
        called = self.called = set()
        yield names
        self.called = None
        for code in called:
            path = Path(code.co_filename).resolve()
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES:
                names.add(f"{path.relative_to(ROOT)}:{code.co_qualname}")


async def read_version(home: Path, calls: Calls) -> set[str]:
    """Return the functions of the first GET of the version, by a service that has just started.

    The service never repeats its check of the schema's revision, which a slow start would let fall into the GET.
    """
    settings = Settings(schema_seconds=float("inf"))
    async with AsyncTestClient(create_app(open_registry(str(home), print), settings)) as client:
        with calls.collect() as names:
            answer = await client.get("/v1/artifacts/dataset/two@1.0.0")
    if answer.status_code != OK:
        raise SystemExit(f"GET: {answer.status_code} {answer.text}")
    return names


def measure() -> Mapping[str, int]:
    """Return every number of ``LIMITS``, measured now."""
    texts = [path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    with tempfile.TemporaryDirectory(prefix="benchlock-size-") as temporary:
        folder = Path(temporary)
        for name in ("test-images.idx", "test-labels.idx"):
            (folder / name).write_bytes((ROOT / "examples/digits/data" / name).read_bytes())
        (folder / "dataset.yaml").write_text(DATASET)
        home = folder / "registry"
        calls = Calls()
        with calls.collect() as publishing:
            code = run(["--registry", str(home), "publish", str(folder / "dataset.yaml")])
        if code:
            raise SystemExit(f"publish: {code}")
        reading = asyncio.run(read_version(home, calls))
    lines = sum(text.count("\n") for text in texts)
    return dict(zip(LIMITS, (len(texts), lines, len(publishing), len(reading)), strict=True))


def main() -> int:
    """Print the table; return 1 where a number is above its limit."""
    numbers = measure()
    for name, number in numbers.items():
        sys.stdout.write(f"{number:>7,}  {name} (at most {LIMITS[name]:,})\n")
    return int(any(number > LIMITS[name] for name, number in numbers.items()))


if __name__ == "__main__":
    sys.exit(main())
