"""A node's worker is a process that ends with the task that started it, and says how it ended."""

import os
import signal
import subprocess
import sys

from benchlock.evaluator.launchers.node_worker import WorkerOrder, describe_error, run_worker
from benchlock.evaluator.launchers.tethered_process import tether

STARTER = """
import subprocess, sys, time
from benchlock.evaluator.launchers.tethered_process import tether
subprocess.Popen(tether([sys.executable, "-u", "-c", sys.argv[1]]))
time.sleep(600)
"""
CHILD = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("told to end"), sys.exit()))
print("here")
time.sleep(600)
"""


def test_a_command_is_told_to_end_when_its_starter_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTER, CHILD], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "here\n"
        starter.send_signal(signal.SIGKILL)
        assert starter.stdout.read() == "told to end\n"


def test_a_command_whose_starter_is_gone_does_not_begin() -> None:
    words = tether([sys.executable, "-c", "print('here')"])
    words[words.index(str(os.getpid()))] = "1"
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_a_worker_sees_the_host_as_without_the_engine_and_its_token_as_a_file() -> None:
    variables = {"PATH": "/bin", "RAY_AUTH_TOKEN": "secret", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    order = WorkerOrder("https://bench.example", "m1", "/etc/benchlock/token", processes=True)
    assert order.environment(variables) == {"PATH": "/bin", "BENCHLOCK_TOKEN_FILE": "/etc/benchlock/token"}
    assert order.words()[-6:] == ["worker", "--until-idle", "--json", "--machine", "m1", "--processes"]
    assert WorkerOrder("https://bench.example").environment({"PATH": "/bin"}) == {"PATH": "/bin"}


def test_a_worker_that_cannot_start_is_reported_with_what_it_said() -> None:
    report = run_worker(WorkerOrder("http://bench.example"))
    assert (report.code, report.machine, report.jobs) == (2, "", 0)
    assert report.message.startswith("http://bench.example is not encrypted")
    assert "; next: " in report.message


def test_an_error_of_an_engine_is_one_line() -> None:
    assert describe_error(ValueError("a\n\nb")) == "a; b"
    assert describe_error(ValueError()) == "ValueError"
    assert len(describe_error(ValueError("a" * 10_000))) == 500
