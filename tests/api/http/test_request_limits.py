"""Bounds: how often somebody may ask, how much may wait, how large a body may be."""

import asyncio
import gc
import threading
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from threading import Semaphore
from types import SimpleNamespace
from typing import Any, cast

import pytest
from litestar.datastructures import Headers
from litestar.routes import HTTPRoute
from litestar.testing import TestClient
from litestar.types import HTTPScope

from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.http.request_authorization import authenticate
from benchlock.api.http.request_limits import (
    AnonymousLimiter,
    ConcurrencyLimiter,
    TokenBuckets,
    TooManyRequestsError,
)
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.server_process import CONNECTIONS
from benchlock.api.http.service_settings import CONCURRENCY_BOUNDS, ConcurrencyBound, Settings
from benchlock.api.http.slow_client_flow_control import (
    MIN_CHUNK,
    IncompleteBodyError,
    SendMemory,
    SlowReaderError,
    TimedSend,
    TooSlowError,
    announced_length,
    drop_body,
    receive_with_timeout,
)
from benchlock.api.http.thread_pools import FairThreadPool
from benchlock.api.local.local_registry import LocalRegistry, open_tokens
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import BusyError
from benchlock.artifacts.isolation.resource_limits import SLOT_CLAIM, ChildSlots
from benchlock.evaluator.records.run_store import Records
from benchlock.registry.auth.permissions import NOTHING, OPEN, Actor, Scopes, get_actor, use_actor
from benchlock.registry.auth.tokens import Authenticator
from tests.api.http.conftest import Client

RUN = "run/01kam1v3mz4w0q3d5g7h9j2k4m"


def test_a_bucket_gives_as_many_as_it_holds_and_is_refilled() -> None:
    buckets = TokenBuckets()
    assert [buckets.take("one", 2.0, 0.0) for _ in range(5)] == [True] * 4 + [False]
    assert buckets.take("another", 2.0, 0.0)
    assert [buckets.take("one", 2.0, 0.5) for _ in range(2)] == [True, False]
    assert [buckets.take("one", 2.0, 1000.0) for _ in range(5)] == [True] * 4 + [False]
    assert [buckets.take("one", 0.1, at) for at in (0.0, 5.0, 10.0)] == [True, False, True]


def test_who_asks_too_often_is_told_to_wait(registry: LocalRegistry) -> None:
    with TestClient(create_app(registry, Settings(rate=1.0)), raise_server_exceptions=False) as client:
        answers = [client.get("/v1/artifacts") for _ in range(20)]
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.json()["code"] == "too-many-requests"
    assert refused.headers["retry-after"]
    assert answers[0].status_code == 200


def test_what_waits_is_bounded_and_goes_on_when_there_is_room() -> None:
    async def crowd() -> None:
        work, gate = FairThreadPool(1, 1, at_once=False), threading.Event()
        waiting = [asyncio.create_task(work.do(gate.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await work.look_up(gate.is_set)
        gate.set()
        assert await asyncio.gather(*waiting) == [True, True]
        assert await work.look_up(gate.is_set)
        await work.end(60)

    asyncio.run(crowd())


def test_what_takes_too_long_is_not_waited_for() -> None:
    async def asked() -> None:
        work, gate = FairThreadPool(1, 1, at_once=False, seconds=0.01), threading.Event()
        with pytest.raises(BusyError, match="seconds"):
            await work.do(gate.wait)
        gate.set()
        await work.end(60)

    asyncio.run(asked())


def test_an_end_waits_for_what_is_being_done_so_long_and_no_longer() -> None:
    async def ended() -> None:
        work, gate = FairThreadPool(1, 1, at_once=False), threading.Event()
        long, waiting = (asyncio.create_task(work.do(gate.wait)) for _ in range(2))
        await asyncio.sleep(0)
        await work.end(0.01)
        assert work.is_busy
        with pytest.raises(BusyError):
            await work.do(gate.is_set)
        gate.set()
        assert await long
        with pytest.raises(BusyError, match="the service is stopping"):
            await waiting
        await work.end(60)
        assert not work.is_busy

    asyncio.run(ended())


@pytest.mark.parametrize(
    ("path", "bytes_"), [("/v1/yanks", 17 << 20), ("/v1/comparisons", 2 << 20), ("/v1/bundles", 2 << 20)]
)
def test_a_body_beyond_its_bound_is_refused(client: Client, path: str, bytes_: int) -> None:
    answer = client.post(path, json={"target": "x" * bytes_})
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


@pytest.mark.parametrize(("path", "wrapped"), [(f"/v1/runs/{RUN[4:]}/end", False), ("/v1/leases/7/run", True)])
@pytest.mark.parametrize(("bytes_", "status"), [(15 << 20, (404, 409)), (17 << 20, (413,))])
def test_the_end_of_a_run_may_be_large_wherever_it_is_told(
    client: Client, path: str, wrapped: bool, bytes_: int, status: tuple[int, ...]
) -> None:
    end = {"outcome": "cancelled", "ended_at": "2026-11-21T12:01:00Z", "details": {"log": "x" * bytes_}}
    answer = client.put(path, json={"run": RUN, "end": end} if wrapped else end)
    assert answer.status_code in status, answer.text[:1000]


def test_places_are_so_many_for_each_and_for_all_and_are_given_back() -> None:
    places = ConcurrencyLimiter({"wait": ConcurrencyBound(2, 3)})
    mine = [places.take(["wait"], "me") for _ in range(2)]
    with pytest.raises(TooManyRequestsError):
        places.take(["wait"], "me")
    places.take(["wait"], "another")
    with pytest.raises(BusyError):
        places.take(["wait"], "a third")
    mine[0]()
    places.take(["wait"], "me")


@pytest.mark.parametrize(
    ("bound", "statuses", "code"),
    [
        (ConcurrencyBound(0, 1), {429}, "too-many-requests"),
        (ConcurrencyBound(1, 0), {503}, "busy"),
        (ConcurrencyBound(1, 1), {422}, "invalid-input"),
    ],
)
def test_what_takes_long_has_a_place_until_it_is_answered(
    registry: LocalRegistry, bound: ConcurrencyBound, statuses: set[int], code: str
) -> None:
    settings = Settings(at_once={**CONCURRENCY_BOUNDS, "ask": bound})
    with TestClient(create_app(registry, settings), raise_server_exceptions=False) as client:
        found = [client.post("/v1/resolve", json={"request": {}}) for _ in range(3)]
        assert client.get("/v1/artifacts").status_code == 200
    assert {one.status_code for one in found} == statuses
    assert {one.json()["code"] for one in found} == {code}


def test_every_sort_of_place_has_a_bound_that_leaves_room_for_the_rest(client: Client) -> None:
    routes = [one for one in client.app.routes if isinstance(one, HTTPRoute)]
    sorts = {handler.opt["at_once"] for one in routes for handler in one.route_handlers if "at_once" in handler.opt}
    assert sorts | {"body"} == set(CONCURRENCY_BOUNDS)
    assert sum(bound.together for bound in CONCURRENCY_BOUNDS.values()) <= CONNECTIONS * 2 // 3


def test_what_reads_everything_keeps_nobody_waiting(registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    began, gate = threading.Event(), threading.Event()

    def stuck(*_: object, **__: object) -> None:
        began.set()
        gate.wait()
        raise BusyError("enough")

    monkeypatch.setattr(EmbeddedRegistry, "verify", stuck)
    settings = Settings(threads=1, long_threads=1)
    with (
        TestClient(create_app(registry, settings), raise_server_exceptions=False) as client,
        ThreadPoolExecutor(2) as others,
    ):
        try:
            stuck_ones = [others.submit(client.post, "/v1/verifications", json={"targets": []}) for _ in range(2)]
            began.wait()
            assert client.get("/v1/jobs").status_code == 200
        finally:
            gate.set()
        assert {one.result().status_code for one in stuck_ones} == {503}


def test_a_wait_for_a_slot_ends_with_its_request() -> None:
    slots = ChildSlots(0)

    def take() -> None:
        with slots.slot():
            pass

    async def ask() -> None:
        work = FairThreadPool(1, 1, at_once=False, seconds=0.05)
        with pytest.raises(BusyError):
            await work.do(take)
        await work.end(60)
        assert not work.is_busy

    with ExitStack() as held:
        for _ in range(slots.count):
            held.enter_context(slots.slot())
        asyncio.run(ask())


@pytest.mark.parametrize("name", ["inspect", "compare"])
def test_publications_and_comparisons_wait_for_a_slot_as_long_as_a_search(registry: LocalRegistry, name: str) -> None:
    slots, service = ChildSlots(0), create_app(registry, Settings(ask_seconds=0.05)).state.service

    def take() -> None:
        with slots.slot():
            pass

    async def ask() -> None:
        with pytest.raises(BusyError, match="no slot"):
            await asyncio.wait_for(getattr(service, name).do(take), 60)

    with ExitStack() as held:
        for _ in range(slots.count):
            held.enter_context(slots.slot())
        asyncio.run(ask())


def test_child_processes_of_ends_of_runs_are_served_first(registry: LocalRegistry) -> None:
    service = create_app(registry).state.service

    async def find_urgent() -> list[FairThreadPool]:
        return [work for work in service.pools if (await work.do(SLOT_CLAIM.get)).urgent]

    assert asyncio.run(find_urgent()) == [service.ends]


def test_a_read_that_recomputes_figures_keeps_no_other_read_waiting(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, begun = threading.Event(), threading.Event()

    def recompute(*_: object) -> None:
        begun.set()
        assert gate.wait(60)
        raise BusyError("enough")

    monkeypatch.setattr(Records, "recall", lambda *_: None)
    monkeypatch.setattr(Records, "get", recompute)
    settings = Settings(threads=1)
    with (
        TestClient(create_app(registry, settings), raise_server_exceptions=False) as client,
        ThreadPoolExecutor(2) as others,
        opened_at_last(gate),
    ):
        slow = others.submit(client.get, f"/v1/runs/{RUN[4:]}")
        assert begun.wait(60)
        count = others.submit(client.get, "/v1/runs/count", params={"lock": digest_bytes(b"")})
        assert count.result(20).status_code == 200
        gate.set()
        assert slow.result(60).status_code == 503


Receive = Callable[[], Awaitable[Any]]


async def _never() -> Any:  # noqa: ANN401
    await asyncio.Event().wait()


async def _drop() -> Any:  # noqa: ANN401
    await asyncio.sleep(0.001)
    return {"type": "http.request", "body": b"x", "more_body": True}


@pytest.mark.parametrize(
    ("receive", "settings"),
    [(_never, Settings(body_seconds=0.01)), (_drop, Settings(body_seconds=0.5, least_rate=1e9))],
    ids=["nothing comes", "it comes in drops"],
)
def test_a_body_that_does_not_come_is_not_waited_for(receive: Receive, settings: Settings) -> None:
    async def read() -> None:
        received = receive_with_timeout(receive, settings)
        while True:
            await received()

    with pytest.raises(TooSlowError):
        asyncio.run(read())


def test_a_body_may_take_the_time_that_its_bytes_give_it() -> None:
    async def read() -> int:
        received = receive_with_timeout(_drop, Settings(body_seconds=60, least_rate=0.001))
        return len([await received() for _ in range(20)])

    assert asyncio.run(read()) == 20


def test_a_body_is_over_when_the_bytes_have_come_that_its_head_announced() -> None:
    async def read() -> list[bool]:
        received = receive_with_timeout(_drop, Settings(), 3)
        return [bool(dict(await received())["more_body"]) for _ in range(3)]

    assert asyncio.run(read()) == [True, True, False]


@pytest.mark.parametrize(
    ("headers", "size"),
    [
        ([(b"content-length", b"12")], 12),
        ([(b"content-type", b"text/plain")], None),
        ([(b"content-length", b"12"), (b"content-length", b"13")], None),
        ([(b"content-length", b"-1")], None),
        ([(b"content-length", b"12"), (b"transfer-encoding", b"chunked")], None),
    ],
)
def test_what_a_head_announces(headers: list[tuple[bytes, bytes]], size: int | None) -> None:
    assert announced_length(cast("HTTPScope", {"headers": headers})) == size


def test_an_answer_that_nobody_takes_is_not_sent_for_ever() -> None:
    async def send() -> None:
        async def taken(_: object) -> None:
            await _never()

        sent = TimedSend(taken, Settings(body_seconds=0.01), SendMemory(0))
        await sent({"type": "http.response.body", "body": b"x", "more_body": True})

    with pytest.raises(TooSlowError):
        asyncio.run(send())


def test_a_large_piece_may_take_the_time_that_its_bytes_give_it() -> None:
    async def send() -> int:
        came: list[object] = []

        async def taken(message: object) -> None:
            await asyncio.sleep(0.05)
            came.append(message)

        sent = TimedSend(taken, Settings(body_seconds=0.01, least_rate=1000), SendMemory(0))
        await sent({"type": "http.response.body", "body": b"x" * 60_000, "more_body": True})
        return len(came)

    assert asyncio.run(send()) == 1


def test_a_client_that_was_fast_must_go_on() -> None:
    settings = Settings(body_seconds=0.05, least_rate=1000.0)

    async def send() -> int:
        taken = 0

        async def take(_: object) -> None:
            nonlocal taken
            taken += 1
            await asyncio.sleep(0 if taken < 20 else 0.02)

        sent = TimedSend(take, settings, SendMemory(0))
        for _ in range(20):
            await sent({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        with suppress(SlowReaderError):
            while taken < 1000:
                await sent({"type": "http.response.body", "body": b"x", "more_body": True})
        return taken

    assert asyncio.run(send()) < 100


def test_a_large_answer_goes_in_pieces_and_has_memory_until_it_is_sent() -> None:
    came: list[Any] = []
    memory = SendMemory(1 << 20)

    async def take(message: Any) -> None:  # noqa: ANN401 - ASGI's
        came.append(message)

    async def send(size: int) -> None:
        sent = TimedSend(take, Settings(), memory)
        await sent({"type": "http.response.start", "status": 200, "headers": []})
        assert came == []
        await sent({"type": "http.response.body", "body": b"x" * size, "more_body": False})

    asyncio.run(send(1 << 20))
    assert came[0]["type"] == "http.response.start"
    assert sum(len(one["body"]) for one in came[1:]) == 1 << 20
    assert max(len(one["body"]) for one in came[1:]) == MIN_CHUNK
    assert [one["more_body"] for one in came[1:]] == [True] * (len(came) - 2) + [False]
    assert memory.left == 1 << 20
    assert memory.take(1)
    came.clear()
    with pytest.raises(BusyError):
        asyncio.run(send(1 << 20))
    assert came == []


def test_a_body_that_ends_in_the_middle_is_the_clients_fault() -> None:
    async def receive() -> Any:  # noqa: ANN401 - ASGI's
        return {"type": "http.disconnect"}

    with pytest.raises(IncompleteBodyError):
        asyncio.run(receive_with_timeout(receive, Settings())())  # type: ignore[arg-type]


def test_what_answers_head_has_no_body() -> None:
    came: list[Any] = []

    async def take(message: Any) -> None:  # noqa: ANN401 - ASGI's
        came.append(message)

    async def send() -> None:
        sent = drop_body(take)
        await sent({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        for more in (True, False):
            await sent({"type": "http.response.body", "body": b"x", "more_body": more})

    asyncio.run(send())
    assert came == [
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]},
        {"type": "http.response.body", "body": b"", "more_body": False},
    ]


def test_who_would_write_while_garbage_is_removed_is_told_to_come_again(registry: LocalRegistry) -> None:
    with TestClient(create_app(registry, Settings(lock_seconds=0.01)), raise_server_exceptions=False) as client:
        put = partial(client.post, "/v1/blobs/uploads", params={"digest": digest_bytes(b"a blob")}, content=b"a blob")
        with registry.store.collecting():
            assert put().status_code == 503
        assert put().status_code == 201


@contextmanager
def opened_at_last(gate: threading.Event) -> Iterator[None]:
    """Open the gate at the end, so that no thread waits for ever where a test fails."""
    try:
        yield
    finally:
        gate.set()


def test_one_caller_never_has_all_threads() -> None:
    async def crowd() -> None:
        work, gate = FairThreadPool(2, 8, at_once=False), threading.Event()
        with opened_at_last(gate):
            with use_actor(Actor("first", NOTHING)):
                mine = [asyncio.create_task(work.do(gate.wait)) for _ in range(3)]
            await asyncio.sleep(0)
            with use_actor(Actor("second", NOTHING)):
                assert not await asyncio.wait_for(work.do(gate.is_set), 10)
        assert await asyncio.gather(*mine) == [True] * 3
        await work.end(60)

    asyncio.run(crowd())


def test_a_thread_counts_as_its_callers_until_it_is_free_though_they_have_left() -> None:
    async def crowd() -> None:
        work, gate = FairThreadPool(2, 8, at_once=False), threading.Event()
        with opened_at_last(gate):
            with use_actor(Actor("first", NOTHING)):
                for _ in range(3):
                    left = asyncio.create_task(work.do(gate.wait))
                    await asyncio.sleep(0.1)
                    left.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await left
            with use_actor(Actor("second", NOTHING)):
                assert not await asyncio.wait_for(work.do(gate.is_set), 10)
        await work.end(60)

    asyncio.run(crowd())


def test_lookups_of_tokens_from_one_network_keep_no_other_network_waiting() -> None:
    gate = threading.Event()

    class Slow:
        def known(self, *_: str | None) -> None:  # a token that is not known yet
            return None

        def admit(self, authorization: str | None, request: str | None) -> Actor:
            assert authorization == "other" or gate.wait(60)
            return Actor(OPEN.id, OPEN.scopes, request)

        def forget(self) -> None: ...

    async def crowd() -> None:
        work = FairThreadPool(2, 8, at_once=False)
        authority, strangers = Slow(), AnonymousLimiter(1e6)

        def ask(host: str, said: str) -> asyncio.Task[Actor]:
            connection: Any = SimpleNamespace(
                client=SimpleNamespace(host=host), headers=Headers({"authorization": said})
            )
            return asyncio.create_task(authenticate(connection, authority, work, strangers))

        with opened_at_last(gate):
            mine = [ask("192.0.2.1", f"guess {number}") for number in range(6)]
            await asyncio.sleep(0)
            await asyncio.wait_for(ask("192.0.2.2", "other"), 10)
        await asyncio.gather(*mine)
        await work.end(60)

    asyncio.run(crowd())


def test_one_caller_never_has_all_places_of_those_who_wait() -> None:
    async def crowd() -> None:
        work, gate = FairThreadPool(2, 8, at_once=False), threading.Event()
        with opened_at_last(gate):
            with use_actor(Actor("first", NOTHING)):
                mine = [asyncio.create_task(work.do(gate.wait)) for _ in range(6)]
                await asyncio.sleep(0)
                with pytest.raises(BusyError, match="6 requests of the same caller") as refused:
                    await asyncio.wait_for(work.do(gate.is_set), 10)
            assert refused.value.next_step
            with use_actor(Actor("second", NOTHING)):
                assert not await asyncio.wait_for(work.do(gate.is_set), 10)
        await asyncio.gather(*mine)
        await work.end(60)

    asyncio.run(crowd())


@pytest.mark.parametrize(
    ("method", "path", "body", "target"),
    [
        (
            "PUT",
            f"/v1/runs/{RUN[4:]}/end",
            {"outcome": "cancelled", "ended_at": "2026-11-21T12:01:00Z"},
            "client_run_routes.RunRecorder._check_and_end",
        ),
        ("POST", "/v1/verdicts", {"run": RUN}, "run_routes._judge_run"),
        ("POST", "/v1/comparisons", {"runs": [RUN, RUN]}, "run_routes._compare_runs"),
    ],
)
def test_what_recomputes_figures_of_one_token_keeps_no_other_token_waiting(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch, method: str, path: str, body: object, target: str
) -> None:
    gate, begun = threading.Event(), Semaphore(0)
    tokens = open_tokens(registry)
    first, second = (tokens.create(name, Scopes.parse(["read", "run"]))[1].text for name in ("first", "second"))
    slow = {tokens.list()[0].id}

    def act(*_: object) -> None:
        if get_actor().id in slow:
            begun.release()
            assert gate.wait(60)
        raise BusyError("enough")

    monkeypatch.setattr(f"benchlock.api.http.routes.{target}", act)
    authority = Authenticator(tokens, lambda: datetime.now(UTC))

    def ask(text: str) -> Any:  # noqa: ANN401 - a response
        return client.request(method, path, json=body, headers={"authorization": f"Bearer {text}"})

    with (
        TestClient(create_app(registry, authority=authority), raise_server_exceptions=False) as client,
        ThreadPoolExecutor(10) as others,
    ):
        try:
            mine = [others.submit(ask, first) for _ in range(3)]
            assert begun.acquire(timeout=60)
            other = others.submit(ask, second).result(20)
            assert other.json()["detail"] == "enough"
            assert not any(one.done() for one in mine)
            assert not begun.acquire(blocking=False)
        finally:
            gate.set()
        assert {one.result().status_code for one in mine} == {503}


def test_ends_and_judgements_have_bounds_with_a_next_step(registry: LocalRegistry) -> None:
    settings = Settings(
        at_once={**CONCURRENCY_BOUNDS, "end": ConcurrencyBound(0, 1), "compare": ConcurrencyBound(0, 1)}
    )
    end = {"outcome": "cancelled", "ended_at": "2026-11-21T12:01:00Z"}
    with TestClient(create_app(registry, settings), raise_server_exceptions=False) as client:
        answers = [
            client.put(f"/v1/runs/{RUN[4:]}/end", json=end),
            client.put("/v1/leases/7/run", json={"run": RUN, "end": end}),
            client.post("/v1/verdicts", json={"run": RUN}),
            client.post("/v1/comparisons", json={"runs": [RUN, RUN]}),
        ]
    assert [one.status_code for one in answers] == [429] * 4
    assert all(one.headers["retry-after"] and one.json()["next"] for one in answers)


def test_long_documents_have_places_of_their_own_whatever_they_are_sent_to(registry: LocalRegistry) -> None:
    settings = Settings(at_once={**CONCURRENCY_BOUNDS, "body": ConcurrencyBound(0, 1)})
    long, short = ({"lock": "sha256:12345678", "target": "x" * size} for size in (300_000, 10))
    with TestClient(create_app(registry, settings), raise_server_exceptions=False) as client:
        for path in ("/v1/locks/why", "/v1/comparisons", "/v1/artifacts", "/v1/jobs", "/v1/tokens"):
            assert client.post(path, json=long).status_code == 429
            assert client.post(path, json=short).status_code != 429
        content = iter([b'{"target":', b'"x"}'])
        assert client.post("/v1/locks/why", content=content).status_code == 429
        blob = b"x" * 300_000
        assert client.post(f"/v1/blobs/uploads?digest={digest_bytes(blob)}", content=blob).status_code == 201


_LONG = b'"' + b"x" * 5_000_000 + b'"'


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/locks/why", b'{"lock":%b,"target":"model/a"}' % _LONG),  # too long: Litestar says so
        ("/v1/artifacts", b'{"manifest":{"schema":1,"kind":"model"},"authored":%b,"sources":{}}' % _LONG),  # several
        ("/v1/artifacts", b'{"manifest":{"schema":1,"kind":%b},"sources":{}}' % _LONG),
        ("/v1/artifacts", b'{"manifest":%b' % _LONG),  # no JSON
        ("/v1/resolve", _LONG),
    ],
)
def test_a_refused_body_is_not_kept_until_garbage_is_collected(client: Client, path: str, body: bytes) -> None:
    """Refused bodies of 16 MiB would add up to gigabytes before the garbage collector looks at the oldest objects."""
    client.post(path, json={})
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        statuses = [client.post(path, content=body).status_code for _ in range(3)]
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert all(400 <= status < 500 for status in statuses)
    assert kept < len(body)


def _publication(attributes: int) -> dict[str, Any]:
    manifest = {"schema": 1, "kind": "framework", "name": "acme/wide", "version": "1.0.0", "license": "MIT"}
    manifest |= {"predictor": "onnxruntime", "distributions": ["onnxruntime"]}
    return {"manifest": manifest | {"attributes": {f"key-{index}": index for index in range(attributes)}}}


@pytest.mark.parametrize(
    ("attributes", "decoded", "sort"), [(10, 0, "work"), (2_000, 1, "work"), (30_000, 1, "inspect")]
)
def test_a_long_publication_is_decoded_and_read_where_few_are(
    registry: LocalRegistry, monkeypatch: pytest.MonkeyPatch, attributes: int, decoded: int, sort: str
) -> None:
    """One thread decodes, and two read, since nothing else runs while a call works on megabytes."""
    app = create_app(registry)
    done = list[str]()

    def record(name: str, work: FairThreadPool) -> None:
        do = work.do

        async def recorded(act: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as Work.do
            done.append(name)
            return await do(act, *args, **kwargs)

        monkeypatch.setattr(work, "do", recorded)

    for name in ("decode", "inspect", "work"):
        record(name, getattr(app.state.service, name))
    with TestClient(app, raise_server_exceptions=False) as client:
        done.clear()
        assert client.post("/v1/artifacts", json=_publication(attributes)).status_code == 201
        assert done == ["decode"] * decoded + [sort]


def test_sources_are_as_many_as_files_may_be(client: Client) -> None:
    sources = {f"file-{index}": "https://example.org/" for index in range(10_001)}
    answer = client.post("/v1/artifacts", json=_publication(1) | {"sources": sources})
    assert answer.status_code == 400
    assert "10000" in answer.text
