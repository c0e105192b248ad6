"""The worker agent: takes jobs one after another and measures each alone."""

import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Final

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import (
    BenchlockError,
    IntegrityError,
    InvalidInputError,
    UnavailableError,
    UnknownNameError,
)
from benchlock.artifacts.size_limits import REASON, truncate
from benchlock.evaluator.queue import worker_lease
from benchlock.evaluator.queue.lease_clock import boot_id, since_boot
from benchlock.evaluator.queue.matching import MachineFacts
from benchlock.evaluator.queue.queue_model import FencedError, Lease, LeaseEnd, MachineId, Queue
from benchlock.evaluator.queue.worker_lease import Heartbeat, LeasedJournal
from benchlock.evaluator.records.run_model import Isolation, RunId
from benchlock.evaluator.runner.engine import Engine
from benchlock.evaluator.runner.host_platform import Host, this_host
from benchlock.evaluator.runner.orphans import clear, halt
from benchlock.evaluator.workflows.run import HostTurn, Journal, Runner
from benchlock.registry.auth.permissions import (
    ForbiddenError,
    MachineRefusedError,
    TokenRefusedError,
    UnauthorizedError,
)
from benchlock.registry.lock.lockfile import Lock

_POLL: Final = 1.0
"""Seconds between two questions for work."""
_ABLE: Final = "{} takes jobs; SIGTERM ends it, and gives its job back"
_UNABLE: Final = (
    "warning: {} can take no job: no container engine answers, and it runs no processes. It goes on looking: start "
    "Docker, or start the worker again with DOCKER_HOST set, or with --processes if you trust who submits"
)
_CLOCK_SET: Final = 1.0
"""Seconds by which the host's clock was set, at least, for the queue to be told."""
_NONCE: Final = 16
"""Bytes of what tells one question from another."""


class StopSignal(KeyboardInterrupt):
    """What runs has to end, at once, and be recorded as far as that counts."""


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """What an agent works with. ``home`` is the folder for runs and environments.

    ``connect`` reaches the engine, ``fetch`` has the lock of an id, ``build`` makes a runner that records in a journal.
    """

    home: Path
    connect: Callable[[], Engine | None]
    fetch: Callable[[Digest], Lock]
    build: Callable[[Journal, HostTurn, Engine | None], Runner]
    say: Callable[[str], None]


@dataclass(slots=True)
class Agent:
    """An agent, which lives in the main thread of its process: signals are for it.

    What others submit runs in containers; as a process too where ``processes``, and code of models so where ``code``.
    The queue knows that, and is not believed.
    """

    queue: Queue
    machine: MachineId
    workshop: WorkerEnvironment
    lock_file: Path
    processes: bool = False
    code: bool = False
    poll: float = _POLL
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    _offset: float | None = None
    _facts: MachineFacts | None = None
    _stopping: bool = False
    _interruptible: bool = False
    _said: str | None = None
    _nonce: str = field(default_factory=lambda: secrets.token_hex(_NONCE))
    _fault: threading.Event = field(default_factory=threading.Event)

    def work(self, *, once: bool = False) -> int:
        """Take jobs until SIGTERM or SIGINT, or ``once``: until one is over; how many were.

        What does not answer is waited for, from the beginning on.

        Raises:
            InvalidInputError: the queue does not let this agent in.
            TokenRefusedError: the queue does not accept the agent's token, or not any more.
            MachineRefusedError: the token is valid, but may not speak for the machine.
        """
        done = 0
        with self._signals():
            with self._patient():
                self._enrol()
            while not self._stopping and not (once and done):
                worked = False
                with self._patient(BenchlockError):
                    worked = self._look()
                if worked:
                    self._said = None
                    done += 1
                elif not self._stopping:
                    self._rest()
            with suppress(BenchlockError):  # else it is missed by itself
                self.queue.depart(self.machine)
        return done

    @contextmanager
    def _patient(self, kind: type[BenchlockError] = UnavailableError) -> Iterator[None]:
        """Say what is away: it may come back."""
        try:
            yield
        except UnauthorizedError as error:
            raise _token_refused(error) from error
        except MachineRefusedError:
            raise
        except kind as error:
            self._tell(str(error))
        except KeyboardInterrupt:  # it came between the end of what it was meant for and here
            pass

    def _look(self) -> bool:
        """Whether there was a job, which is over now."""
        with worker_lease.host_lock(self.lock_file) as descriptor:
            engine = self.workshop.connect()
            try:
                clear(engine, self.workshop.home)
                if descriptor is None:
                    self._tell("something else is measuring on this host")
                    return False
                if self._facts is None:
                    self._changes(engine)
                taken = None if engine is None else worker_lease.remove_stale_container(engine, self.queue)
                if taken is not None:
                    self._tell(taken)
                    return False
                asked = since_boot()
                lease = self._ask()
                if lease is None:
                    return False
                return self._perform(lease, asked, descriptor, engine)
            finally:
                _close(engine)

    def _ask(self) -> Lease | None:
        """A job, where there is one; a question whose answer was lost, or came to nothing, is asked again.

        Raises:
            UnknownNameError: the queue has no such machine any more: its database is an older one, or another. What the
                machine is will be told anew.
            MachineRefusedError: the token may not speak for the machine.
        """
        try:
            return self.queue.lease(self.machine, boot_id(), self._nonce)
        except UnknownNameError:
            self._facts = None
            raise
        except ForbiddenError as error:
            raise _machine_refused(self.machine, error) from error

    def _ask_anew(self) -> None:
        """The lease that answered the question is somebody's or over: the next question is another."""
        self._nonce = secrets.token_hex(_NONCE)

    def _perform(self, lease: Lease, asked: float, descriptor: int, engine: Engine | None) -> bool:
        """Whether the lease was used: not where the machine is no more what the queue took it for.

        Where that cannot be said, the next question has the same lease, which is nobody's meanwhile.
        """
        before = self._facts
        changes = self._changes(engine)
        if self._stopping or changes:
            try:
                self._give_back(lease, "returned", "; ".join(changes) or "its agent was asked to end")
            except BaseException:
                self._facts = before
                raise
            self._ask_anew()
            return False
        self.workshop.say(f"{lease.job}: {lease.lock}")
        with Heartbeat(self.queue, lease, self._over, asked) as pulse:
            self._ask_anew()
            journal = LeasedJournal(self.queue, lease, pulse, self._settled)
            labels = worker_lease.make_labels(lease.queue, lease.fence)
            turn = HostTurn(worker_lease.CONTAINER, labels, (descriptor,), pulse.enter)
            with self._halting(journal):
                trouble = self._run(lease, self.workshop.build(journal, turn, engine), pulse)
            self._conclude(lease, journal, pulse, trouble)
        refusal = trouble if isinstance(trouble, UnauthorizedError) else pulse.refusal
        if refusal is not None:
            raise refusal
        return True

    def _run(self, lease: Lease, runner: Runner, pulse: Heartbeat) -> BaseException | None:
        """Run the lock of the lease; what went wrong."""
        try:
            lock = self.workshop.fetch(lease.lock)
            self._interruptible = True
            self._check(pulse)
            isolation, allow_code = self._allowed(lease)
            runner.run(lock, isolation=isolation, allow_code=allow_code)
        except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the job goes on elsewhere, the agent here
            return error
        finally:
            self._interruptible = False
        return None

    def _allowed(self, lease: Lease) -> tuple[Isolation | None, bool]:
        """How the lease's lock may run here.

        Raises:
            UnavailableError: it may not.
        """
        if self.processes:
            return lease.isolation, lease.allow_code and self.code
        if lease.isolation == "process":
            raise UnavailableError(
                "this worker runs containers alone", next_step="start it with --processes if you trust who submits"
            )
        return "container", False

    def _conclude(self, lease: Lease, journal: LeasedJournal, pulse: Heartbeat, trouble: BaseException | None) -> None:
        """Say what became of the job, and give it back where no run of it was recorded."""
        reason = trouble.what if isinstance(trouble, BenchlockError) else f"{type(trouble).__name__}: {trouble}"
        if journal.job is not None:
            job = journal.job
            self.workshop.say(f"{job.id}: {job.state}, {journal.began}" + (f": {job.reason}" if job.reason else ""))
            return
        if pulse.refusal is not None or isinstance(trouble, UnauthorizedError):
            self.workshop.say(f"{lease.job}: ended: the queue refuses this worker's token")
            return
        if pulse.verdict == "lost" or isinstance(trouble, FencedError):
            self.workshop.say(f"{lease.job}: the lease was lost, and what was done does not count")
            return
        if isinstance(trouble, KeyboardInterrupt):
            reason = "it was cancelled" if pulse.verdict == "cancel" else "its agent was asked to end"
        self.workshop.say(f"{lease.job}: given back: {reason}")
        with suppress(BenchlockError):  # else its lease ends by itself
            self._give_back(lease, _ended(trouble), reason)

    def _give_back(self, lease: Lease, ended: LeaseEnd, reason: str) -> None:
        self.queue.release(lease.fence, ended, truncate(reason, REASON))

    def _enrol(self) -> None:
        engine = self.workshop.connect()
        try:
            self._changes(engine)
        finally:
            _close(engine)

    def _changes(self, engine: Engine | None) -> tuple[str, ...]:
        """What of the machine is other than the queue was told; it is told."""
        host = facts_of(this_host(), None if engine is None else engine.version)
        found = replace(host, processes=self.processes, code=self.processes and self.code)
        clock = self.clock()
        offset = clock.timestamp() - since_boot()
        before, self._facts = self._facts, found
        is_set = self._offset is not None and abs(offset - self._offset) >= _CLOCK_SET
        if before == found and not is_set:
            return ()
        try:
            self.queue.enrol(self.machine, boot_id(), found, clock)
        except ForbiddenError as error:
            self._facts = before
            raise _machine_refused(self.machine, error) from error
        except BaseException:
            self._facts = before
            raise
        self._offset = offset
        if before is None or _is_able(before) != _is_able(found):
            self.workshop.say((_ABLE if _is_able(found) else _UNABLE).format(self.machine))
        return () if before is None else before.changes(found)

    def _tell(self, message: str) -> None:
        """Say it, unless it was the last thing to be said."""
        if message != self._said:
            self.workshop.say(message)
            self._said = message

    # interruption

    @contextmanager
    def _halting(self, journal: LeasedJournal) -> Iterator[None]:
        """While held, what runs is ended from a thread of its own as soon as the lease is over."""
        self._fault.clear()
        ended = threading.Event()

        def watch() -> None:
            self._fault.wait()
            while not ended.is_set():
                if not ended.is_set() and journal.began is not None:
                    self._halt(journal.began)
                ended.wait(self.poll)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            self._fault.set()
            thread.join()

    def _halt(self, run: RunId) -> None:
        engine = self.workshop.connect()  # one of its own: the other is in use
        try:
            with suppress(BenchlockError):
                halt(engine, self.workshop.home, run)
        finally:
            _close(engine)

    def _check(self, pulse: Heartbeat) -> None:
        """Nothing interrupted while nothing could be."""
        if self._stopping or pulse.verdict is not None:
            raise StopSignal

    def _over(self) -> None:
        """The lease is over: end what runs, whatever this process's main thread does, and then interrupt that too."""
        self._fault.set()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def _settled(self) -> None:
        self._interruptible = False

    def _rest(self) -> None:
        try:
            self._interruptible = True
            time.sleep(0 if self._stopping else self.poll)
        except KeyboardInterrupt:
            pass
        finally:
            self._interruptible = False

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def interrupt(number: int, _frame: FrameType | None) -> None:
            self._stopping = self._stopping or number != signal.SIGUSR1
            if self._interruptible:
                self._interruptible = False
                raise StopSignal

        before = {one: signal.signal(one, interrupt) for one in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def facts_of(host: Host, engine: str | None) -> MachineFacts:
    """The facts of a machine, as the queue holds conditions against them."""
    known = replace(host.facts, without=" ".join(host.facts.without.split()))  # a driver's message may have lines
    return MachineFacts(known, engine, host.cpu_model, host.kernel, host.governor)


def _is_able(facts: MachineFacts) -> bool:
    """Whether it can run anything at all."""
    return facts.engine is not None or facts.processes


def _token_refused(error: BenchlockError) -> TokenRefusedError:
    return TokenRefusedError(
        f"the worker ends, because its token is refused: {error.what}",
        where=error.where,
        next_step="give the worker a valid token with the scope run, and start it again",
    )


def _machine_refused(machine: MachineId, error: ForbiddenError) -> MachineRefusedError:
    return MachineRefusedError(
        f"the worker ends, because its token may not speak for the machine {machine}: {error.what}",
        where=error.where,
        next_step="use the token that enrolled the machine, a token with the scope run, or another name (--machine)",
    )


def _close(engine: Engine | None) -> None:
    if engine is not None:
        engine.close()


def _ended(trouble: BaseException | None) -> LeaseEnd:
    if isinstance(trouble, KeyboardInterrupt):
        return "returned"
    if isinstance(trouble, IntegrityError):
        return "integrity"
    is_of_job = isinstance(trouble, InvalidInputError) and not isinstance(trouble, ForbiddenError)
    return "invalid" if is_of_job else "engine"
