"""The counters beside the clock: they count what they say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
# A call of 20 milliseconds of work beside another process that never rests, both on one processor: no scheduler lets
# either go on for so long. It goes on until three calls were pre-empted, for want of which it ends after 200.
SCRIPT = """
import json, os, signal, sys, time
from benchlock.evaluator.harness.performance.call_meter import Meter

class Predictor:
    in_caller, threads, device = True, {}, "cpu"

def work(_unit):
    end = time.perf_counter() + 0.02
    while time.perf_counter() < end:
        pass
    return {}

os.sched_setaffinity(0, {int(sys.argv[1])})
meter = Meter(Predictor(), int(sys.argv[2]))
read = meter.reader(lambda indices: indices, work, lambda _made: None)
parent = os.getpid()
busy = os.fork()
if busy == 0:
    while os.getppid() == parent:
        pass
    os._exit(0)
try:
    read([0])
    while meter.columns()["preempted"].sum() < 3 and len(meter.rows) < 200:
        read([0])
finally:
    os.kill(busy, signal.SIGKILL)
    os.waitpid(busy, 0)
columns = meter.columns()
print(json.dumps({"scope": meter.scope, **{name: columns[name].tolist() for name in columns}}))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux, which pins processes")
@pytest.mark.parametrize(("threads", "scope"), [(1, "thread"), (2, "process")])
def test_a_call_that_another_process_interrupts_is_pre_empted(threads: int, scope: str) -> None:
    core = min(os.sched_getaffinity(0))
    command = [sys.executable, "-c", SCRIPT, str(core), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, cwd=ROOT)
    found = json.loads(done.stdout)
    assert found["scope"] == scope
    assert sum(found["preempted"]) >= 3
    assert set(found["preempted"]) <= {0, 1}
    # The other one had the processor for a part of a call: its time is in the latency, and no CPU time of ours.
    interrupted = [place for place, switches in enumerate(found["preempted"]) if switches]
    assert any(found["cpu_ns"][place] < found["latency_ns"][place] for place in interrupted)
