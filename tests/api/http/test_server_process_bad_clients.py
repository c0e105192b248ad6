"""Clients that send what is no request, leave in the middle, or read slowly: over real sockets, to a real service."""

import json
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchlock.artifacts.digest import digest_bytes
from tests.support.api.serving import Served, memory_of, service, tuned_service

MIB = 1 << 20
BLOB = random.Random(7).randbytes(32 * MIB)  # the same in every process: its digest is in names of tests
DIGEST = digest_bytes(BLOB)
READERS = 100
ENOUGH_SECONDS = 120.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with service(tmp_path_factory.mktemp("served") / "registry") as found:
        put_blob(found)
        yield found


def put_blob(served: Served) -> None:
    octets = {"content-type": "application/octet-stream"}
    sent = httpx.post(f"{served.url}/v1/blobs/uploads?digest={DIGEST}", content=BLOB, headers=octets, timeout=120)
    assert sent.status_code == 201, sent.text


def connect(served: Served, sent: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
    connection = socket.socket()
    connection.bind((source, 0))
    connection.settimeout(ENOUGH_SECONDS)
    connection.connect(("127.0.0.1", served.port))
    connection.sendall(sent)
    return connection


def head(method: str, path: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode()


def answer_to(served: Served, sent: bytes, *, ends: bool = False) -> tuple[int, bytes]:
    """The status and the body of the answer; 0 where the connection was closed without one.

    Where it ``ends``, nothing is sent after that, and the service knows.
    """
    with connect(served) as connection:
        try:
            connection.sendall(sent)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            came = b"".join(iter(lambda: connection.recv(65536), b""))
        except OSError:  # it was closed before all of that was read
            came = b""
    first, _, body = came.partition(b"\r\n\r\n")
    return (int(first.split()[1]) if first else 0), body


def lines_of(served: Served, **wanted: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON values
    """The lines of the log that have these fields."""
    lines = [json.loads(line) for line in served.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if wanted.items() <= line.items()]


def wait_until(holds: Any) -> None:  # noqa: ANN401 - anything that is called
    deadline = time.monotonic() + ENOUGH_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


def count_of(served: Served, reason: str) -> float:
    """How many broken requests of a sort the metrics tell of."""
    text = httpx.get(f"{served.url}/v1/metrics").text
    found = [
        line for line in text.splitlines() if line.startswith(f'benchlock_broken_requests_total{{reason="{reason}"}}')
    ]
    return float(found[0].split()[1]) if found else 0.0


CHUNKED = "Transfer-Encoding: chunked"
UPLOAD = f"/v1/blobs/uploads?digest={DIGEST}"
JSON = "Content-Type: application/json"
BROKEN_BODIES = {
    "an extension of 17,000 bytes": b"5;" + b"x" * 17_000 + b"\r\nhello\r\n0\r\n\r\n",
    "a size that overflows": b"fffffffffffffffff1\r\nhello\r\n0\r\n\r\n",
    "a size that is no number": b"zz\r\nhello\r\n0\r\n\r\n",
    "no end of a chunk": b"5\r\nhelloXX0\r\n\r\n",
    "the end in the middle": b"10\r\nhello",
}


@pytest.mark.parametrize("body", BROKEN_BODIES.values(), ids=BROKEN_BODIES)
@pytest.mark.parametrize("path", ["/v1/resolve", UPLOAD, "/v1/artifacts"])
def test_a_broken_body_is_the_clients_fault_and_one_quiet_line(served: Served, path: str, body: bytes) -> None:
    before, id_ = count_of(served, "incomplete-body"), os.urandom(8).hex()
    sent = head("POST", path, CHUNKED, JSON, f"X-Request-Id: {id_}") + body
    status, problem = answer_to(served, sent, ends=True)
    assert status == 400
    assert json.loads(problem)["code"] == "malformed"
    wait_until(lambda: lines_of(served, request_id=id_))
    (line,) = lines_of(served, request_id=id_)
    assert (line["level"], line["status"]) == ("info", 400)
    assert "Traceback" not in served.log.read_text()
    assert count_of(served, "incomplete-body") == before + 1


@pytest.mark.parametrize("path", ["/v1/resolve", UPLOAD])
def test_a_client_that_leaves_in_the_middle_of_a_body_is_one_quiet_line(served: Served, path: str) -> None:
    id_ = os.urandom(8).hex()
    connect(served, head("POST", path, "Content-Length: 1000", JSON, f"X-Request-Id: {id_}") + b"{").close()
    wait_until(lambda: lines_of(served, request_id=id_))
    (line,) = lines_of(served, request_id=id_)
    assert (line["level"], line["status"]) == ("info", 400)
    assert "Traceback" not in served.log.read_text()


@pytest.mark.parametrize(
    ("size", "status"), [(1000, 200), ((64 << 10) - 300, 200), ((64 << 10) + 1, 431), (100_000, 431), (120_000, 431)]
)
def test_a_head_has_64_kib_and_no_more(served: Served, size: int, status: int) -> None:
    found, problem = answer_to(served, head("GET", "/v1/health", "Connection: close", "X-Long: " + "x" * size))
    assert found == status
    if status == 431 and problem:  # the server's core refuses some by itself, without a body
        assert json.loads(problem)["code"] == "head-too-large"


UNPARSED = {
    "binary": (b"\x00\x01\r\n\r\n", 400),
    "no-version": (b"GET /v1/health\r\n\r\n", 400),
    "unknown-version": (b"GET /v1/health HTTP/9.9\r\nHost: a\r\n\r\n", 400),
    "method": (head("G@T{", "/v1/health"), 400),
    "space-in-target": (head("GET", "/v1/he alth"), 400),
    "relative-target": (head("GET", "v1/health"), 400),
    "header-name": (head("GET", "/v1/health", "X Y: 1"), 400),
    "header-value": (head("GET", "/v1/health", "X: a\0b"), 400),
    "two-lengths": (head("POST", "/v1/resolve", "Content-Length: 1", "Content-Length: 2"), 400),
    "length": (head("POST", "/v1/resolve", "Content-Length: x"), 400),
    "encoding": (head("POST", "/v1/resolve", "Transfer-Encoding: other"), 400),
    "headers": (head("GET", "/v1/health", *(f"X-{number}: 1" for number in range(100))), 431),
    "target": (head("GET", f"/{'x' * 65_600}"), 414),
    "http2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0),
}


@pytest.mark.parametrize("case", UNPARSED)
def test_what_the_parser_refuses_has_an_empty_body_and_a_closed_connection(served: Served, case: str) -> None:
    """The documentation lists these: the server's core answers them by itself, and nothing of ours is asked."""
    sent, status = UNPARSED[case]
    assert answer_to(served, sent) == (status, b"")
    assert httpx.get(f"{served.url}/v1/health").status_code == 200


def test_a_hundred_headers_are_read(served: Served) -> None:
    lines = [f"X-{number}: 1" for number in range(98)]  # beside Host and Connection
    assert answer_to(served, head("GET", "/v1/health", "Connection: close", *lines))[0] == 200


def test_a_head_far_beyond_is_refused_before_it_is_read(served: Served) -> None:
    status, _ = answer_to(served, head("GET", "/v1/health", "X-Long: " + "x" * 8 * MIB))
    assert status in (0, 431)


def slow_readers(served: Served, stack: ExitStack) -> list[socket.socket]:
    """Clients that ask for a blob, at ten addresses, and read the first bytes of it."""
    sent = head("GET", f"/v1/blobs/{DIGEST}")
    readers = [stack.enter_context(connect(served, sent, f"127.0.0.{2 + at // 10}")) for at in range(READERS)]
    assert {reader.recv(12) for reader in readers} == {b"HTTP/1.1 200"}
    return readers


def test_slow_readers_cost_little_memory_and_give_it_back(served: Served) -> None:
    before = memory_of(served)
    for _ in range(2):
        with ExitStack() as stack:
            slow_readers(served, stack)
            time.sleep(2)  # for what the service sends ahead
            assert memory_of(served) - before < 128 * MIB
            assert httpx.get(f"{served.url}/v1/health").status_code == 200
        wait_until(lambda: "benchlock_requests_under_way 1.0" in httpx.get(f"{served.url}/v1/metrics").text)
    assert memory_of(served) - before < 128 * MIB
    assert {line["level"] for line in lines_of(served, status=499)} == {"info"}
    assert count_of(served, "client-left") == 2 * READERS
    assert "Traceback" not in served.log.read_text()


def test_readers_of_blobs_are_bounded(served: Served) -> None:
    sent = head("GET", f"/v1/blobs/{DIGEST}")
    with ExitStack() as stack:
        readers = [stack.enter_context(connect(served, sent)) for _ in range(60)]
        statuses = [int(reader.recv(12).split()[1]) for reader in readers]
    assert (statuses.count(200), statuses.count(429)) == (48, 12)


def test_a_reader_that_stalls_is_cut_and_its_connection_closed(tmp_path: Path) -> None:
    with tuned_service(tmp_path / "registry", "body_seconds=0.5, least_rate=1e6") as served:
        put_blob(served)
        with connect(served, head("GET", f"/v1/blobs/{DIGEST}")) as reader:
            assert reader.recv(12) == b"HTTP/1.1 200"
            wait_until(lambda: count_of(served, "slow-reader") == 1)
            came = 0
            try:
                while part := reader.recv(MIB):
                    came += len(part)
            except ConnectionError:
                pass
            assert came < len(BLOB) // 2
        (line,) = [line for line in lines_of(served, message="answered") if "cut" in line.get("reason", "")]
        assert "read nothing" in line["reason"]
        assert "Traceback" not in served.log.read_text()


@pytest.mark.parametrize(
    "path", ["/v1/health", "/v1/artifacts", f"/v1/blobs/{DIGEST}", "/v1/openapi.json", "/v1/nowhere"]
)
def test_head_is_get_without_a_body(served: Served, path: str) -> None:
    got, asked = (httpx.request(method, f"{served.url}{path}") for method in ("GET", "HEAD"))
    changing = {"date", "x-request-id"}
    assert asked.status_code == got.status_code
    assert {k: v for k, v in asked.headers.items() if k not in changing} | {"content-length": ""} == {
        k: v for k, v in got.headers.items() if k not in changing
    } | {"content-length": ""}
    assert got.status_code == 404 or asked.headers["content-length"] == got.headers["content-length"]
    assert asked.content == b""
