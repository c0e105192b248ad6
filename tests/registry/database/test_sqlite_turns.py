"""A turn goes to who asked first, comes back from who gave up, and is not lost by who was interrupted."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from benchlock.registry.database.sqlite import FairLock


def waiting(turn: FairLock, count: int) -> None:
    """Wait until ``count`` threads wait for the turn."""
    end = time.monotonic() + 30
    while len(turn._waiting) < count:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_it_goes_to_who_has_waited_longest_and_not_to_who_just_had_it() -> None:
    turn, order = FairLock(), []

    def take(number: int) -> None:
        assert turn.acquire(30)
        order.append(number)
        turn.release()

    assert turn.acquire(0)
    with ThreadPoolExecutor(4) as pool:
        for number in range(4):
            pool.submit(take, number)
            waiting(turn, number + 1)
        turn.release()
        assert turn.acquire(30)
        assert order == [0, 1, 2, 3]
        turn.release()


def test_who_gives_up_is_passed_over() -> None:
    turn, found = FairLock(), []

    def take_and_leave() -> None:
        found.append(turn.acquire(30))
        turn.release()

    assert turn.acquire(0)
    with ThreadPoolExecutor(2) as pool:
        impatient = pool.submit(turn.acquire, 0.01)
        assert impatient.result() is False
        patient = pool.submit(take_and_leave)
        waiting(turn, 1)
        turn.release()
        patient.result()
    assert found == [True]
    assert turn.acquire(0)


INTERRUPTED = """
import signal, threading, time
from benchlock.registry.database.sqlite import FairLock

turn, held, over = FairLock(), threading.Event(), threading.Event()

def hold():
    turn.acquire(0)
    held.set()
    over.wait()
    turn.release()

def stop(*_):
    raise KeyboardInterrupt

holder = threading.Thread(target=hold)
holder.start()
held.wait()
signal.signal(signal.SIGALRM, stop)
signal.setitimer(signal.ITIMER_REAL, 0.2)
try:
    turn.acquire(30)
except KeyboardInterrupt:
    over.set()
    holder.join()
    other = threading.Thread(target=lambda: print(turn.acquire(1)))
    other.start()
    other.join()
"""


def test_who_is_interrupted_while_waiting_is_passed_over() -> None:
    """By a signal, which reaches the main thread alone; so in a process of its own."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "True\n"


def test_who_was_interrupted_before_it_could_leave_takes_it_again() -> None:
    turn = FairLock()
    assert turn.acquire(0)
    assert turn.acquire(0)
    turn.release()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(turn.acquire, 1).result()
