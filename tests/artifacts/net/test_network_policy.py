"""The guard against requests to addresses that are not public (SSRF), as one table, and with real servers."""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import httpx
import pytest

from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.net.http_session import ErrorPolicy, Session
from benchlock.artifacts.net.network_policy import NetworkPolicy, is_public
from tests.support.servers.web import CERTIFICATE, File, Web, redirect, serving

PUBLIC, OTHER_PUBLIC, PRIVATE = "93.184.216.34", "2606:4700::1111", "10.0.0.1"
POLICY = NetworkPolicy(proxies={})
LISTED = replace(POLICY, redirect_hosts=frozenset({"host.test"}))
PUBLIC_ONLY, HUB_INSIDE = replace(POLICY, public_only=True), replace(POLICY, private_redirects=True)
ANY = ()
REFUSED = None

TABLE = [
    # policy, the server itself?, through a proxy?, addresses of host.test, addresses to connect to
    (POLICY, True, False, (PRIVATE,), ANY),
    (POLICY, False, False, (PUBLIC, OTHER_PUBLIC), (PUBLIC, OTHER_PUBLIC)),
    (POLICY, False, False, (PRIVATE,), REFUSED),
    (POLICY, False, False, (PUBLIC, PRIVATE), REFUSED),
    (POLICY, False, False, (PUBLIC, "::1"), REFUSED),
    (POLICY, False, False, (), OSError),
    (POLICY, False, True, (PUBLIC,), ANY),
    (POLICY, False, True, (PRIVATE,), REFUSED),
    (POLICY, False, True, (), ANY),
    (LISTED, False, False, (PRIVATE,), ANY),
    (HUB_INSIDE, False, False, (PRIVATE,), ANY),
    (PUBLIC_ONLY, True, False, (PUBLIC,), (PUBLIC,)),
    (PUBLIC_ONLY, True, False, (PRIVATE,), REFUSED),
    (PUBLIC_ONLY, True, True, (PUBLIC,), ANY),
    (PUBLIC_ONLY, True, True, (PRIVATE,), REFUSED),
    (PUBLIC_ONLY, True, True, (), OSError),
    (PUBLIC_ONLY, False, True, (), OSError),
    (PUBLIC_ONLY, False, False, (PRIVATE,), REFUSED),
    (replace(LISTED, public_only=True), True, False, (PRIVATE,), ANY),
]


def resolving(*answers: tuple[str, ...]) -> Callable[..., list[Any]]:
    """A resolver that gives one answer after the other for names of .test, and keeps to the last."""
    left, honest = list(answers), socket.getaddrinfo

    def resolve(host: str, port: int, *arguments: Any, **options: Any) -> list[Any]:  # noqa: ANN401
        if not host.lower().endswith(".test"):
            return honest(host, port, *arguments, **options)
        addresses = left.pop(0) if len(left) > 1 else left[0]
        if not addresses:
            raise socket.gaierror(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return resolve


@pytest.mark.parametrize(("policy", "is_home", "is_proxied", "addresses", "expected"), TABLE)
def test_the_addresses_that_a_connection_may_use(
    monkeypatch: pytest.MonkeyPatch,
    policy: NetworkPolicy,
    addresses: tuple[str, ...],
    expected: tuple[str, ...] | type[OSError] | None,
    *,
    is_home: bool,
    is_proxied: bool,
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", resolving(addresses))
    if isinstance(expected, tuple):
        assert policy.find_addresses("Host.test", 443, "a", is_home=is_home, is_proxied=is_proxied) == expected
        return
    with pytest.raises(expected or InvalidInputError, match=None if expected else "not public"):
        policy.find_addresses("Host.test", 443, "a", is_home=is_home, is_proxied=is_proxied)


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", OTHER_PUBLIC, "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
        *("192.0.2.1", "198.18.0.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1"),
        *("::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:a00:1::", "2002:7f00:1::1", "2001:0:a00:1::1"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Web, Web]]:
    """Two servers of this machine, which both have /file."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    with serving() as one, serving() as another:
        one.pages["/file"] = another.pages["/file"] = File(b"content")
        yield one, another


def get(url: str, policy: NetworkPolicy = POLICY) -> int:
    """The status of a GET with a token, from a session with the server of ``url``."""
    with closing(Session(url, "the server", ErrorPolicy("", ""), policy, authorization="Bearer secret")) as session:
        return session.ask_once("GET", url).status


@pytest.mark.parametrize(
    ("location", "address"),
    [
        ("ELSEWHERE/file", "127.0.0.1"),
        ("https://127.0.0.1:1/file", "127.0.0.1"),
        ("https://localhost/file", r"(127.0.0.1|::1)"),
        ("https://10.1.2.3/file", "10.1.2.3"),
        ("https://169.254.169.254/latest/meta-data", "169.254.169.254"),
        ("https://[::1]/file", "::1"),
        ("https://[fd00:ec2::254]/file", "fd00:ec2::254"),
        ("https://[::ffff:192.168.0.1]/file", "192.168.0.1|c0a8:1"),
        ("https://2130706433/file", "127.0.0.1"),
        ("https://0x7f.1/file", "127.0.0.1"),
    ],
)
def test_no_redirect_leads_to_an_address_that_is_not_public(
    servers: tuple[Web, Web], location: str, address: str
) -> None:
    web, elsewhere = servers
    web.pages["/a"] = redirect(location.replace("ELSEWHERE", elsewhere.origin))
    for proxies in ({}, {"https": "http://proxy.invalid"}):
        with pytest.raises(InvalidInputError, match=f"{address}, which is not public") as caught:
            get(f"{web.origin}/a?token=secret", replace(POLICY, proxies=proxies, host_advice="list it"))
        assert caught.value.next_step == "list it"
        assert "secret" not in str(caught.value)
    assert elsewhere.asked == []


@pytest.mark.parametrize("location", ["http://localhost/x", "https://u:secret@localhost/x", "ftp://x/y", "https://["])
def test_redirects_that_are_refused(servers: tuple[Web, Web], location: str) -> None:
    servers[0].pages["/a"] = redirect(location)
    with pytest.raises(InvalidInputError) as caught:
        get(f"{servers[0].origin}/a", HUB_INSIDE)
    assert "secret" not in str(caught.value)


def test_credentials_go_to_the_server_itself_and_to_no_other(servers: tuple[Web, Web]) -> None:
    web, elsewhere = servers
    web.pages |= {"/a": redirect("/b"), "/b": redirect(f"{elsewhere.origin}/back"), "/c": File(b"")}
    elsewhere.pages["/back"] = redirect(f"{web.origin}/c")
    assert get(f"{web.origin}/a", replace(POLICY, redirect_hosts=frozenset({"localhost"}))) == 200
    assert [one.headers["Authorization"] for one in web.asked] == ["Bearer secret"] * 3
    assert [one.headers["Authorization"] for one in elsewhere.asked] == [None]


def test_a_name_that_changes_its_address_gains_nothing(
    servers: tuple[Web, Web], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second look at a name, between the check and the connection, is what an attacker would answer otherwise."""
    web, connected, connect = servers[0], list[str](), socket.create_connection

    def note(address: tuple[str, int], *arguments: Any, **options: Any) -> socket.socket:  # noqa: ANN401
        if address[0] == "localhost":
            return connect(address, *arguments, **options)
        connected.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", resolving((PUBLIC, OTHER_PUBLIC), ("127.0.0.1",)))
    monkeypatch.setattr(socket, "create_connection", note)
    web.pages["/a"] = redirect("https://rebinding.test/x")
    with pytest.raises(UnavailableError):
        get(f"{web.origin}/a")
    assert connected == [PUBLIC, OTHER_PUBLIC]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]", "10.0.0.1", "[fd00::1]"])
def test_a_service_asks_nothing_of_its_own_network(servers: tuple[Web, Web], host: str) -> None:
    port = servers[0].origin.rpartition(":")[2]
    with pytest.raises(InvalidInputError, match="not public"):
        get(f"https://{host}:{port}/file", PUBLIC_ONLY)
    assert servers[0].asked == []
    if host == "localhost":
        assert get(f"https://{host}:{port}/file", replace(PUBLIC_ONLY, redirect_hosts=frozenset({host}))) == 200


def test_an_address_is_asked_by_the_name_that_it_was_looked_up_for(
    servers: tuple[Web, Web], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate is compared with the name, and names of one address share no connection."""
    web = servers[0]
    monkeypatch.setattr("benchlock.artifacts.net.network_policy.is_public", lambda _: True)
    assert get(f"{web.origin}/file", PUBLIC_ONLY) == 200
    assert web.asked[0].headers["Host"] == web.origin.removeprefix("https://")
    monkeypatch.setattr(socket, "getaddrinfo", resolving(("127.0.0.1",)))
    web.pages["/a"] = redirect(web.origin.replace("localhost", "other.test") + "/file")
    with pytest.raises(UnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
        get(f"{web.origin}/a", PUBLIC_ONLY)


def test_a_host_name_with_an_invalid_label() -> None:
    for policy in (POLICY, PUBLIC_ONLY):
        with pytest.raises(InvalidInputError, match=r"invalid URL https://a\.\.b/file: .*label"):
            get("https://a..b/file", policy)


def test_a_redirect_of_a_server_says_who_can_fix_it(servers: tuple[Web, Web]) -> None:
    servers[0].pages["/a"] = redirect("https://10.0.0.1/file")
    with pytest.raises(InvalidInputError) as caught:
        get(f"{servers[0].origin}/a")
    assert caught.value.next_step == "fix the server's redirect: it must lead to public addresses"


def test_connections_that_are_opened_while_others_are_closed(
    servers: tuple[Web, Web], monkeypatch: pytest.MonkeyPatch
) -> None:
    close = httpx.Client.close

    def open_another(client: httpx.Client) -> None:
        with suppress(UnavailableError):  # the certificate is that of another name
            session.ask_once("GET", servers[0].origin.replace("localhost", "other.test"))
        close(client)

    monkeypatch.setattr("benchlock.artifacts.net.network_policy.is_public", lambda _: True)
    monkeypatch.setattr(socket, "getaddrinfo", resolving(("127.0.0.1",)))
    session = Session(servers[0].origin, "the server", ErrorPolicy("", ""), PUBLIC_ONLY)
    assert session.ask_once("GET", f"{servers[0].origin}/file").status == 200
    monkeypatch.setattr(httpx.Client, "close", open_another)
    session.close()
    monkeypatch.undo()
    session.close()
