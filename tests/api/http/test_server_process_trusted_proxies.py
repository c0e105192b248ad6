"""A service behind proxies: what they say of who asks is believed, of everybody else it is not."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

import httpx
import pytest

from benchlock.api.http.routes.app import create_app
from benchlock.api.http.server_process import trust_proxies
from benchlock.api.http.service_settings import Settings
from benchlock.api.local.local_registry import LocalRegistry, open_tokens
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.auth.tokens import Authenticator
from tests.api.http.conftest import NOON

PROXY, HERE, THERE = "10.0.0.7", "203.0.113.1", "203.0.113.2"
Request = tuple[str, str]
"""Who sends it, and what it says of who asked: nothing where that is empty."""


def answered(registry: LocalRegistry, proxies: Sequence[str], requests: Sequence[Request]) -> list[int]:
    """The statuses of requests without a token, of which each address has one in a quarter of an hour."""

    def now() -> datetime:
        return NOON

    app = trust_proxies(
        create_app(registry, Settings(strangers=0.001), Authenticator(open_tokens(registry), now)), proxies
    )

    async def asked(sender: str, said: str) -> int:
        transport = httpx.ASGITransport(app=app, client=(sender, 1234))
        headers = {"x-forwarded-for": said} if said else {}
        async with httpx.AsyncClient(transport=transport, base_url="http://benchlock") as client:
            return (await client.get("/v1/artifacts", headers=headers)).status_code

    async def every() -> list[int]:
        return [await asked(*one) for one in requests]

    return asyncio.run(every())


def test_who_asks_through_a_proxy_is_told_apart(registry: LocalRegistry) -> None:
    requests = [(PROXY, HERE), (PROXY, HERE), (PROXY, THERE), (PROXY, ""), (PROXY, "")]
    assert answered(registry, ["10.0.0.0/24"], requests) == [401, 429, 401, 401, 429]


def test_the_last_that_is_no_proxy_counts_whatever_it_said_before(registry: LocalRegistry) -> None:
    requests = [(PROXY, f"192.0.2.1, {HERE}"), (PROXY, f"192.0.2.2, {HERE}"), (PROXY, f"{THERE}, 10.0.0.8")]
    assert answered(registry, [PROXY, "10.0.0.8"], requests) == [401, 429, 401]


def test_what_nobody_trusts_says_is_not_believed(registry: LocalRegistry) -> None:
    requests = [(HERE, "192.0.2.1"), (HERE, "192.0.2.2")]
    assert answered(registry, [PROXY], requests) == [401, 429]
    assert answered(registry, [], requests) == [401, 429]


@pytest.mark.parametrize(
    ("first", "second", "are_one"),
    [
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", False),
        ("203.0.113.1", "::ffff:203.0.113.1", True),
        ("::ffff:203.0.113.1", "::ffff:203.0.113.2", False),
    ],
)
def test_what_one_machine_may_have_of_addresses_is_one(
    registry: LocalRegistry, first: str, second: str, are_one: bool
) -> None:
    assert answered(registry, [], [(first, ""), (second, "")]) == [401, 429 if are_one else 401]


@pytest.mark.parametrize(
    ("first", "second"), [(f"{HERE}:1234", f"{HERE}:1235"), ("[2001:db8::1]:1", "[2001:db8::1]:2"), (HERE, f"{HERE}:1")]
)
def test_ports_that_a_proxy_writes_make_nobody_another(registry: LocalRegistry, first: str, second: str) -> None:
    assert answered(registry, [PROXY], [(PROXY, first), (PROXY, second)]) == [401, 429]


def test_a_proxy_is_known_whatever_kind_of_socket_it_comes_to(registry: LocalRegistry) -> None:
    mapped = f"::ffff:{PROXY}"
    assert answered(registry, ["10.0.0.0/24"], [(mapped, HERE), (mapped, THERE), (mapped, HERE)]) == [401, 401, 429]


@pytest.mark.parametrize("text", ["proxy.example.org", "10.0.0.1/24", "", "*"])
def test_what_is_no_address_is_refused(registry: LocalRegistry, text: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid proxy address"):
        trust_proxies(create_app(registry), [text])
