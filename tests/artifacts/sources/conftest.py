"""Servers of this machine, whose certificate the environment trusts."""

from collections.abc import Iterator

import pytest

from tests.support.servers.web import CERTIFICATE, Web, serving


@pytest.fixture(autouse=True)
def trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' certificate is trusted, and no proxy stands between."""
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")


@pytest.fixture
def web() -> Iterator[Web]:
    """A server with TLS."""
    with serving() as running:
        yield running


@pytest.fixture
def elsewhere() -> Iterator[Web]:
    """Another server with TLS, on another port."""
    with serving() as running:
        yield running


@pytest.fixture
def plain() -> Iterator[Web]:
    """A server without TLS."""
    with serving(tls=False) as running:
        yield running
