"""A launcher attaches only to a cluster that it can trust, and that has its versions."""

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from benchlock.artifacts.errors import BenchlockError, InvalidInputError, RefusedError
from benchlock.evaluator.launchers import ray_connection
from benchlock.evaluator.launchers.ray_connection import ClusterFacts, Supervision, check_cluster, check_facts

OWN = ("2.60.0", "3.11")
LOCAL, REMOTE = ("127.0.0.1",), ("127.0.0.1", "10.0.0.7")


def refusal(facts: ClusterFacts, *, is_open: bool = False) -> BenchlockError:
    with pytest.raises(RefusedError) as caught:
        check_facts(facts, is_open=is_open, address="head:6379", own=OWN)
    return caught.value


def test_an_open_cluster_is_accepted_on_the_loopback_alone() -> None:
    check_facts(ClusterFacts("2.60.0", "3.11.9", LOCAL), is_open=True, address="head:6379", own=OWN)
    check_facts(ClusterFacts("2.60.0", "3.11.9", REMOTE), is_open=False, address="head:6379", own=OWN)
    error = refusal(ClusterFacts("2.60.0", "3.11.9", REMOTE), is_open=True)
    assert error.what == "the Ray cluster is open: everyone who reaches 10.0.0.7 can run code on its nodes"
    assert error.next_step == "start the cluster with RAY_AUTH_MODE=token"


def test_another_version_of_ray_or_python_is_refused() -> None:
    assert "has Ray 2.59.0, this host 2.60.0" in refusal(ClusterFacts("2.59.0", "3.11.9", LOCAL)).what
    assert "has Python 3.12.1, this host 3.11" in refusal(ClusterFacts("2.60.0", "3.12.1", LOCAL)).what


def test_a_cluster_that_refuses_the_token_is_said() -> None:
    assert "refuses the token of this host" in refusal(ClusterFacts(refused=True)).what


@pytest.mark.parametrize("address", ["head", "head:", "http://head:6379", "head:6379/x", ""])
def test_a_malformed_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid address"):
        check_cluster(address)


def test_without_ray_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(ray_connection, "version", missing)
    with pytest.raises(InvalidInputError) as caught:
        check_cluster("127.0.0.1:6379")
    assert caught.value.next_step == "install it with: pip install 'benchlock[ray]'"


def test_an_attached_process_is_started_again_until_its_exit_code_is_final(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("time.sleep", lambda _: None)
    log = tmp_path / "starts"
    script = f"import sys; log = open({str(log)!r}, 'a+'); log.write('.'); log.seek(0); sys.exit(5 - len(log.read()))"
    said: list[str] = []
    assert Supervision([sys.executable, "-c", script], frozenset({2}), said.append).run() == 2
    assert log.read_text() == "..."
    assert [text.partition("(")[2] for text in said] == [
        "exit code 4); it tries again",
        "exit code 3); it tries again",
    ]
