"""Documents with more values than any client needs are refused before they take memory or hold the event loop."""

import json
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.registry.text.toml import loads
from tests.support.api.probing import memory_of, watch
from tests.support.api.serving import Served, service
from tests.support.artifacts.bundled import bundled, packed, root_of, unpacked, with_root
from tests.support.artifacts.memory_store import MemoryStore

GROWTH = 64 << 20
LISTS = b"[" + b"[]," * (5 << 20) + b"[]]"
RUN = "run/01kam1v3mz4w0q3d5g7h9j2k4m"
_EMPTY: dict[str, Any] = {"metrics": [], "packages": {}, "blobs": {}, "timings": {}}
END = json.dumps(
    {"outcome": "failed", "ended_at": "2026-11-21T12:01:00Z", "failure_class": "crash", "failure_message": "x"} | _EMPTY
).encode()[:-1] + (b',"details":{"x":%s}}' % LISTS)


def bodies() -> Iterator[tuple[str, str, bytes]]:
    """Method, path and body of requests that are small for the service, and large once they are decoded."""
    request = b'{"request":{"x":%s}}' % LISTS
    yield "PUT", f"runs/{RUN}/end", END
    yield "PUT", "leases/7/run", b'{"run":"%s","end":%s}' % (RUN.encode(), END)
    yield "POST", "locks", request
    yield "POST", "resolve", request
    for text in ("a = [" + "[]," * (1300 << 10) + "]", "".join(f"{number:x}.b.c.d=0\n" for number in range(250_000))):
        yield "POST", "locks", json.dumps({"text": text}).encode()
        hidden = json.dumps(text).replace(",", "\\u002c").replace("[", "\\u005b").encode()
        yield "POST", "locks/why", b'{"lock":%s,"target":"model/x"}' % hidden


def test_bodies_of_many_values_cost_the_service_nothing(tmp_path: Path) -> None:
    with service(tmp_path / "registry") as served:
        before = memory_of(served.process.pid)
        for method, path, body in bodies():
            status, grown = _send(served, method, path, body)
            assert (status, grown - before < GROWTH) in ((413, True), (422, True)), (path, status, grown - before)
        assert "Traceback" not in served.log.read_text()


def test_bundles_of_many_values_or_files_cost_the_service_nothing(tmp_path: Path, schema: Path) -> None:
    made = bundled(MemoryStore(), tmp_path, schema).create(tmp_path / "made.tar")
    files = unpacked(made)
    record = root_of(files, 1).replace(b'"details":{', b'"details":{"x":%s,' % LISTS, 1).replace(b"]],}", b"]]}", 1)
    with service(tmp_path / "registry") as served:
        assert _import(served, made)[0] == 200
        before = memory_of(served.process.pid)
        for number, text in ((1, record), (0, b"a = %s\n" % LISTS), (0, root_of(files, 0) + b"#" * (8 << 20))):
            status, grown = _import(served, packed(tmp_path / "bad.tar", with_root(files, number, text)))
            assert status == 422
            assert grown - before < GROWTH
        status, grown = _import(served, _with_files(made, tmp_path / "many.tar", 400_000))
        assert status == 422
        assert grown - before < GROWTH
        assert "Traceback" not in served.log.read_text()


def test_toml_bounds_its_values_outside_of_texts() -> None:
    assert loads('a = ",,,,[[[[" # ,,,,,\nb = [1]\n', 3) == {"a": ",,,,[[[[", "b": [1]}
    with pytest.raises(ValueError, match="more than 2 values"):
        loads("a = [1]\nb = 2\n", 2)
    with pytest.raises(ValueError, match="more than 20 values"):
        loads("a.b.c.d = 1\n", 20)


def _send(served: Served, method: str, path: str, body: bytes) -> tuple[int, int]:
    """Send a body; the status, and the largest memory of the service meanwhile."""
    headers = {"content-type": "application/json"}
    url = f"{served.url}/v1/{path}"
    answer, waits = watch(
        served.url, served.process.pid, lambda: httpx.request(method, url, content=body, headers=headers, timeout=300)
    )
    return answer.status_code, waits.peak


def _import(served: Served, bundle: Path) -> tuple[int, int]:
    digest = LocalStore(served.registry / "blobs").put_file(bundle).digest
    return _send(served, "POST", "bundles", json.dumps({"blob": digest}).encode())


def _with_files(bundle: Path, path: Path, count: int) -> Path:
    """Write the same bundle with ``count`` empty files more."""
    shutil.copy(bundle, path)
    with tarfile.open(bundle) as tar:
        end = tar.getmembers()[-1]
    with path.open("r+b") as file:
        file.seek(end.offset_data + end.size + -end.size % 512)
        for number in range(count):
            file.write(tarfile.TarInfo(f"blobs/sha256/{number:064x}").tobuf(tarfile.USTAR_FORMAT))
        file.write(bytes(1024))
        file.truncate()
    return path
