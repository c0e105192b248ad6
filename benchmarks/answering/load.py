"""Requests from many clients at once, by wrk on one thread: how many a second, and how long the slowest took."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("load.lua")
_APART = 10_000_000
_starts = count(_APART, _APART)


@dataclass(frozen=True, slots=True)
class Answered:
    """Answers a second; seconds of the median and of the slowest hundredth."""

    rate: float
    p50: float
    p99: float


def ask(url: str, requests: Sequence[str], clients: int, seconds: float, folder: Path) -> Answered:
    """Send ``requests`` in a random order, again and again, from so many connections.

    A request is ``METHOD PATH [BODY]``; ``{n}`` becomes a number that no other request has. The measurement is over
    where one was refused or broke off: its time would mean nothing.
    """
    file = folder / "requests.txt"
    file.write_text("\n".join(requests) + "\n")
    pace = ["-t1", f"-c{clients}", f"-d{seconds:.0f}s", "--timeout", "30s"]
    words: list[str | Path] = [*pace, "-s", SCRIPT, url, "--", file]
    done = subprocess.run(["wrk", *words, str(next(_starts))], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["refused"] or found["broken"]:
        raise SystemExit(
            f"{found['refused']} refused and {found['broken']} broken of {found['requests']}: {requests[0]}"
        )
    return Answered(found["requests"] / found["seconds"], found["p50"], found["p99"])
