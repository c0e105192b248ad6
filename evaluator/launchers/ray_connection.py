"""The checks before this host attaches to a Ray cluster, and the process that is attached.

Ray ends a process that lost its cluster for a minute, so the launcher is a child process, which is started again. Its
settings of Ray are environment variables, which Ray reads when it is imported.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from types import FrameType
from typing import Final

import msgspec

from benchlock.artifacts.errors import InvalidInputError, RefusedError, UnavailableError
from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.artifacts.net.urls import is_loopback
from benchlock.evaluator.launchers.tethered_process import tether

_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}")
_PROBE_SECONDS: Final = 40.0
_PAUSE: Final = 5.0
_OPEN: Final = {"RAY_AUTH_MODE": "disabled"}
_TOKEN: Final = {"RAY_AUTH_MODE": "token"}
_PATCHES: Final = {"RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL": "minor"}
_KEEP_LOOPBACK: Final = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Otherwise Ray replaces the address 127.0.0.1 by one of the host's others, where such a cluster does not listen."""


@prepare_decoder
class ClusterFacts(msgspec.Struct, frozen=True):
    """What a Ray cluster says of itself; of one that refuses the caller, only that."""

    ray: str = ""
    python: str = ""
    addresses: tuple[str, ...] = ()
    refused: bool = False


def check_cluster(address: str) -> dict[str, str]:
    """Check that this host may attach to a Ray cluster; return the environment variables that Ray needs for that.

    Raises:
        InvalidInputError: The address is malformed, or Ray is not installed.
        RefusedError: The cluster is open to everyone who reaches it, or refuses the token of this host, or has
            another version of Ray or Python.
        UnavailableError: The cluster does not answer.
    """
    if _ADDRESS.fullmatch(address) is None:
        raise InvalidInputError(
            f"invalid address {address!r}", where=address, next_step="write HOST:PORT, as `ray start` printed it"
        )
    try:
        own = version("ray")
    except PackageNotFoundError:
        raise InvalidInputError(
            "Ray is not installed", where="cluster ray", next_step="install it with: pip install 'benchlock[ray]'"
        ) from None
    facts = _probe(address, _OPEN)
    is_open = not facts.refused
    if facts.refused:
        facts = _probe(address, _TOKEN)
    check_facts(facts, is_open=is_open, address=address, own=(own, f"{sys.version_info[0]}.{sys.version_info[1]}"))
    is_local = all(map(is_loopback, facts.addresses))
    return (_OPEN if is_open else _TOKEN) | _PATCHES | (_KEEP_LOOPBACK if is_local else {})


def check_facts(facts: ClusterFacts, *, is_open: bool, address: str, own: tuple[str, str]) -> None:
    """Raise unless this host may attach to the cluster.

    Args:
        facts: What the cluster says of itself.
        is_open: Whether it answers without a token.
        address: Its address.
        own: The version of Ray on this host, and the minor version of Python.

    Raises:
        RefusedError: As ``check_cluster``.
    """
    if facts.refused:
        raise RefusedError(
            "the Ray cluster refuses the token of this host, or this host has none",
            where=address,
            next_step="set RAY_AUTH_TOKEN_PATH to the file with the cluster's token",
        )
    outside = [place for place in facts.addresses if not is_loopback(place)]
    if is_open and outside:
        raise RefusedError(
            f"the Ray cluster is open: everyone who reaches {outside[0]} can run code on its nodes",
            where=address,
            next_step="start the cluster with RAY_AUTH_MODE=token",
        )
    if facts.ray != own[0]:
        raise RefusedError(
            f"the Ray cluster has Ray {facts.ray}, this host {own[0]}",
            where=address,
            next_step=f"install the cluster's version with: pip install 'ray=={facts.ray}'",
        )
    if facts.python.split(".")[:2] != own[1].split("."):
        raise RefusedError(
            f"the Ray cluster has Python {facts.python}, this host {own[1]}",
            where=address,
            next_step="run the command with the cluster's minor version of Python",
        )


def _probe(address: str, variables: Mapping[str, str]) -> ClusterFacts:
    """Ask the cluster in a process of its own, because Ray reads its settings once and may wait for long."""
    unavailable = UnavailableError(
        "no Ray cluster answers", where=address, next_step="check the address, and that the head is running"
    )
    words = [sys.executable, "-m", "benchlock.evaluator.launchers.ray_cluster", address]
    try:
        done = subprocess.run(
            words, env=os.environ | variables, capture_output=True, timeout=_PROBE_SECONDS, check=True
        )
        return msgspec.json.decode(done.stdout, type=ClusterFacts)
    except (subprocess.SubprocessError, msgspec.DecodeError) as error:
        raise unavailable from error


class Supervision:
    """The attached process of a launcher, which checks the cluster, and is started again whenever it lost it.

    Args:
        words: The command line of the process.
        final: The exit codes after which it is not started again.
        say: Prints a message.
    """

    def __init__(self, words: Sequence[str], final: frozenset[int], say: Callable[[str], None]) -> None:
        """Prepare; nothing is started yet."""
        self._words, self._final, self._say = words, final, say
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopping = False

    def run(self) -> int:
        """Run until SIGTERM, SIGINT or a final exit code; return the code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        while not self._is_stopping:
            self._process = subprocess.Popen(tether(self._words))
            if self._is_stopping:
                self._process.terminate()
            code = self._process.wait()
            if self._is_stopping:
                break
            if code in self._final:
                return code
            self._say(f"warning: the launcher is not attached to the Ray cluster (exit code {code}); it tries again")
            time.sleep(_PAUSE)
        return 0

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._is_stopping = True
        if self._process is not None:
            self._process.terminate()
