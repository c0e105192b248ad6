"""What is read from a URL."""

from benchlock.artifacts.net.urls import is_loopback


def test_a_loopback_is_told_from_other_addresses() -> None:
    hosts = ("127.0.0.1", "127.1.2.3", "::1", "Localhost", "0.0.0.0", "::", "10.0.0.1", "registry.example.org")
    assert [is_loopback(host) for host in hosts] == [True] * 4 + [False] * 4
