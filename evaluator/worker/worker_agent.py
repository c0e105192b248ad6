"""The worker agent: takes one job after another and measures it alone on its host."""

import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

from msgspec import structs, to_builtins

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import (
    BenchlockError,
    IntegrityError,
    InvalidInputError,
    UnavailableError,
    UnknownNameError,
)
from benchlock.artifacts.size_limits import REASON, truncate
from benchlock.evaluator.queue.job_matching import MachineFacts
from benchlock.evaluator.queue.lease_times import boot_id, since_boot
from benchlock.evaluator.queue.queue_types import FencedError, Lease, LeaseEnd, MachineId, Queue
from benchlock.evaluator.records.run_types import Isolation, RunId, RunJournal
from benchlock.evaluator.runner.container_engine import Engine
from benchlock.evaluator.runner.host_platform import Host, HostTurn, this_host
from benchlock.evaluator.runner.orphans import clear, halt
from benchlock.evaluator.worker import lease_heartbeats
from benchlock.evaluator.worker.lease_heartbeats import Heartbeat, LeasedJournal
from benchlock.evaluator.worker.progress_reports import ProgressReports
from benchlock.registry.auth.permissions import (
    ForbiddenError,
    MachineRefusedError,
    TokenRefusedError,
    UnauthorizedError,
)
from benchlock.registry.lock.lockfile import Lock

if TYPE_CHECKING:
    from benchlock.evaluator.workflows.run import Runner

_PAUSE: Final = 1.0
"""Seconds between two requests for a lease if an available job is not leased to this agent, and after an error."""
_PAUSES_OF_WAIT: Final = 4
"""The longest wait for a job, in pauses; then an idle agent checks its host for orphans."""
_ABLE: Final = "{} accepts jobs; SIGTERM stops it and returns its job to the queue"
_UNABLE: Final = (
    "warning: {} cannot run jobs: no container engine responds, and it may not run processes. The worker keeps looking "
    "for an engine: start Docker, or restart the worker with DOCKER_HOST set, or allow processes if you trust all "
    "submitters"
)
_CLOCK_SET: Final = 1.0
"""The smallest change of the host's clock, in seconds, that is reported to the queue."""
_RENEWAL: Final = 0.05
"""Seconds until a stop signal that Python dropped is sent again."""

_NONCE: Final = 16
"""Number of random bytes in the nonce of a request for work."""


class StopSignal(KeyboardInterrupt):
    """The order to end the current run at once; the run is still recorded where that is possible."""


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """The environment of an agent.

    Attributes:
        home: The folder for runs and environments.
        connect: Connects to the container engine; None if there is none.
        fetch: Loads a lock by its id.
        build: Creates a runner that records in the given journal.
        say: Prints one line for the operator.
        boot: The id of this boot of the host, and of the cache of files if the worker has one.
    """

    home: Path
    connect: Callable[[], Engine | None]
    fetch: Callable[[Digest], Lock]
    build: Callable[[RunJournal, HostTurn, Engine | None], "Runner"]
    say: Callable[[str], None]
    boot: str = field(default_factory=boot_id)


@dataclass(slots=True)
class Agent:
    """A worker agent. It must live in the main thread of its process, because it handles signals.

    Submitted jobs run in containers. With ``processes`` they may also run as processes, and with ``code`` so may models
    that bring their own code. The queue knows both flags, but the agent checks each lease against them again.
    """

    queue: Queue
    machine: MachineId
    environment: WorkerEnvironment
    lock_file: Path
    processes: bool = False
    code: bool = False
    pause: float = _PAUSE
    clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC))
    _offset: float | None = None
    _facts: MachineFacts | None = None
    _is_paused: bool = False
    _stopping: bool = False
    _interruptible: bool = False
    _last_message: str | None = None
    _nonce: str = field(default_factory=lambda: secrets.token_hex(_NONCE))
    _fault: threading.Event = field(default_factory=threading.Event)

    def work(self, *, once: bool = False, until_idle: bool = False) -> int:
        """Take jobs until SIGTERM or SIGINT, and return their number.

        With ``once`` stop after the first job, with ``until_idle`` as soon as no queued job fits the machine.

        The agent waits for an unavailable queue or engine, also at its start.

        Raises:
            InvalidInputError: The queue rejects the enrolment of this agent.
            TokenRefusedError: The queue does not accept the agent's token, or accepts it no longer.
            MachineRefusedError: The token is valid, but may not speak for the machine.
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
                    self._last_message, self._is_paused = None, False
                    done += 1
                elif not self._stopping:
                    is_idle = self._rest()
                    if is_idle and until_idle:
                        break
            with suppress(BenchlockError):  # otherwise the missing heartbeats tell the queue
                self.queue.depart(self.machine)
        return done

    @contextmanager
    def _patient(self, kind: type[BenchlockError] = UnavailableError) -> Iterator[None]:
        """Report an error of this kind and continue, because the service may come back."""
        try:
            yield
        except UnauthorizedError as error:
            raise _token_refused(error) from error
        except MachineRefusedError:
            raise
        except kind as error:
            self._tell(str(error))
        except KeyboardInterrupt:  # the signal arrived just after the job that it was meant for had ended
            pass

    def _look(self) -> bool:
        """Ask for a job and run it; return whether there was one."""
        with lease_heartbeats.host_lock(self.lock_file) as descriptor:
            engine = self.environment.connect()
            try:
                clear(engine, self.environment.home)
                if descriptor is None:
                    self._tell("another process is measuring on this host")
                    return False
                if self._facts is None:
                    self._changes(engine)
                blocker = None if engine is None else lease_heartbeats.remove_stale_container(engine, self.queue)
                if blocker is not None:
                    self._tell(blocker)
                    return False
                asked_at = since_boot()
                lease = self._ask()
                if lease is None:
                    return False
                return self._perform(lease, asked_at, descriptor, engine)
            finally:
                _close(engine)

    def _ask(self) -> Lease | None:
        """Request a job. After a lost response the next call repeats the request with the same nonce.

        Raises:
            UnknownNameError: The queue does not know the machine any more: its database was restored or replaced. The
                agent enrols the machine again.
            MachineRefusedError: The token may not speak for the machine.
        """
        try:
            return self.queue.lease(self.machine, self.environment.boot, self._nonce)
        except UnknownNameError:
            self._facts = None
            raise
        except ForbiddenError as error:
            raise _machine_refused(self.machine, error) from error

    def _ask_anew(self) -> None:
        """Choose a new nonce, because the lease for the last request is in use or over."""
        self._nonce = secrets.token_hex(_NONCE)

    def _perform(self, lease: Lease, asked_at: float, descriptor: int, engine: Engine | None) -> bool:
        """Run the leased job; return False and give it back if the machine changed since its enrolment.

        If the job cannot be given back, the next request has the same nonce and gets the same lease.
        """
        before = self._facts
        changes = self._changes(engine)
        if self._stopping or changes:
            try:
                self._give_back(lease, "returned", "; ".join(changes) or "its worker was stopped")
            except BaseException:
                self._facts = before
                raise
            self._ask_anew()
            return False
        self.environment.say(f"{lease.job}: {lease.lock}")
        with Heartbeat(self.queue, lease, self._over, asked_at) as heartbeat:
            self._ask_anew()
            journal = LeasedJournal(self.queue, lease, heartbeat, self._settled)
            labels = lease_heartbeats.make_labels(lease.queue, lease.fence)
            turn = HostTurn(lease_heartbeats.CONTAINER, labels, (descriptor,), heartbeat.enter)
            try:
                runner = self.environment.build(journal, turn, engine)
            except Exception as failure:  # noqa: BLE001 - such as an import after an upgrade: the job is given back
                self._conclude(lease, journal, heartbeat, failure)
                return True
            report = partial(self.queue.report, lease.fence)
            with (
                ProgressReports(runner.progress, report, lambda: heartbeat.phase) as reports,
                self._halting(journal),
            ):
                error = self._run(lease, replace(runner, progress=reports), heartbeat)
            self._conclude(lease, journal, heartbeat, error)
        refusal = error if isinstance(error, UnauthorizedError) else heartbeat.refusal
        if refusal is not None:
            raise refusal
        return True

    def _run(self, lease: Lease, runner: "Runner", heartbeat: Heartbeat) -> BaseException | None:
        """Run the lock of the lease and return the error, if any."""
        try:
            lock = self.environment.fetch(lease.lock)
            self._interruptible = True
            self._check(heartbeat)
            isolation, allow_code = self._allowed(lease)
            part_of = None if lease.part_of is None else to_builtins(lease.part_of)
            runner.run(lock, isolation=isolation, allow_code=allow_code, part_of=part_of)
        except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - another worker retries the job, this agent continues
            return error
        finally:
            self._interruptible = False
        return None

    def _allowed(self, lease: Lease) -> tuple[Isolation | None, bool]:
        """Return the isolation, and whether model code is allowed, for this lease on this machine.

        Raises:
            UnavailableError: The machine does not run such jobs.
        """
        if self.processes:
            return lease.isolation, lease.allow_code and self.code
        if lease.isolation == "process":
            raise UnavailableError(
                "this worker runs only containers", next_step="allow processes if you trust all submitters"
            )
        return "container", False

    def _conclude(
        self, lease: Lease, journal: LeasedJournal, heartbeat: Heartbeat, error: BaseException | None
    ) -> None:
        """Report what became of the job, and give it back if no run of it was recorded."""
        reason = error.what if isinstance(error, BenchlockError) else f"{type(error).__name__}: {error}"
        if journal.job is not None:
            job = journal.job
            self.environment.say(f"{job.id}: {job.state}, {journal.began}" + (f": {job.reason}" if job.reason else ""))
            return
        if heartbeat.refusal is not None or isinstance(error, UnauthorizedError):
            self.environment.say(f"{lease.job}: stopped: the queue rejected this worker's token")
            return
        if heartbeat.verdict == "lost" or isinstance(error, FencedError):
            self.environment.say(f"{lease.job}: the lease was lost, so this run does not count")
            return
        if isinstance(error, KeyboardInterrupt):
            reason = "cancelled" if heartbeat.verdict == "cancel" else "its worker was stopped"
        self.environment.say(f"{lease.job}: returned to the queue: {reason}")
        with suppress(BenchlockError):  # otherwise the lease expires
            self._give_back(lease, _classify_error(error), reason)

    def _give_back(self, lease: Lease, ended: LeaseEnd, reason: str) -> None:
        self.queue.release(lease.fence, ended, truncate(reason, REASON))

    def _enrol(self) -> None:
        engine = self.environment.connect()
        try:
            self._changes(engine)
        finally:
            _close(engine)

    def _changes(self, engine: Engine | None) -> tuple[str, ...]:
        """Enrol the machine if its facts or its clock changed; return the changed facts in words."""
        host = facts_of(this_host(), None if engine is None else engine.version)
        facts = structs.replace(host, processes=self.processes, code=self.processes and self.code)
        clock = self.clock()
        offset = clock.timestamp() - since_boot()
        before, self._facts = self._facts, facts
        is_set = self._offset is not None and abs(offset - self._offset) >= _CLOCK_SET
        if before == facts and not is_set:
            return ()
        try:
            self.queue.enrol(self.machine, self.environment.boot, facts, clock)
        except ForbiddenError as error:
            self._facts = before
            raise _machine_refused(self.machine, error) from error
        except BaseException:
            self._facts = before
            raise
        self._offset = offset
        if before is None or _is_able(before) != _is_able(facts):
            self.environment.say((_ABLE if _is_able(facts) else _UNABLE).format(self.machine))
        return () if before is None else before.changes(facts)

    def _tell(self, message: str) -> None:
        """Print a message, unless it equals the last one."""
        if message != self._last_message:
            self.environment.say(message)
            self._last_message = message

    # Interruption

    @contextmanager
    def _halting(self, journal: LeasedJournal) -> Iterator[None]:
        """Within this context, a separate thread ends the run as soon as the lease is over."""
        self._fault.clear()
        is_over = threading.Event()

        def watch() -> None:
            self._fault.wait()
            while not is_over.is_set():
                if not is_over.is_set() and journal.began is not None:
                    self._halt(journal.began)
                is_over.wait(self.pause)

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            self._fault.set()
            thread.join()

    def _halt(self, run: RunId) -> None:
        engine = self.environment.connect()  # a separate connection, because the main thread uses the other one
        try:
            with suppress(BenchlockError):
                halt(engine, self.environment.home, run)
        finally:
            _close(engine)

    def _check(self, heartbeat: Heartbeat) -> None:
        """Raise a stop signal that arrived while the agent was not interruptible."""
        if self._stopping or heartbeat.verdict is not None:
            raise StopSignal

    def _over(self) -> None:
        """Handle the end of the lease: end the run from another thread, then interrupt the main thread."""
        self._fault.set()
        _interrupt_main()

    def _settled(self) -> None:
        self._interruptible = False

    def _rest(self) -> bool:
        """Wait for a job; pause instead if the last wait found one that could not be taken, or failed.

        Returns:
            Whether the queue has no job for the machine.
        """
        is_paused, self._is_paused = self._is_paused, True
        with self._patient(BenchlockError):
            try:
                self._interruptible = True
                if is_paused or self._stopping:
                    time.sleep(0 if self._stopping else self.pause)
                    self._is_paused = False
                else:
                    self._is_paused = self.queue.wait_for_job(self.machine, _PAUSES_OF_WAIT * self.pause)
                    return not self._is_paused
            finally:
                self._interruptible = False
        return False

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def interrupt(received: int, _frame: FrameType | None) -> None:
            self._stopping = self._stopping or received != signal.SIGUSR1
            if self._interruptible:
                self._interruptible = False
                raise StopSignal

        before = {
            number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
        }
        report = sys.unraisablehook

        def renew(unraisable: "sys.UnraisableHookArgs") -> None:
            # Python drops an exception that a signal raises in a destructor or the callback of a weak reference.
            if not isinstance(unraisable.exc_value, StopSignal):
                report(unraisable)
                return
            self._interruptible = True
            threading.Timer(_RENEWAL, _interrupt_main).start()  # raised in this hook, it would be dropped too

        sys.unraisablehook = renew
        try:
            yield
        finally:
            sys.unraisablehook = report
            for number, handler in before.items():
                signal.signal(number, handler)


def facts_of(host: Host, engine: str | None) -> MachineFacts:
    """Return the facts of a machine in the form that the queue compares with the conditions of jobs."""
    host_facts = replace(host.facts, without=" ".join(host.facts.without.split()))  # a driver's message may have lines
    return MachineFacts(host_facts, engine, host.cpu_model, host.kernel, host.governor)


def _is_able(facts: MachineFacts) -> bool:
    """Return whether the machine can run any job at all."""
    return facts.engine is not None or facts.processes


def _interrupt_main() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


def _token_refused(error: BenchlockError) -> TokenRefusedError:
    return TokenRefusedError(
        f"the worker stops because its token was rejected: {error.what}",
        where=error.where,
        next_step="restart the worker with a valid token that has the scope run",
    )


def _machine_refused(machine: MachineId, error: ForbiddenError) -> MachineRefusedError:
    return MachineRefusedError(
        f"the worker stops because its token may not act for the machine {machine}: {error.what}",
        where=error.where,
        next_step="use the token that enrolled the machine, a token with the scope run, or another machine name",
    )


def _close(engine: Engine | None) -> None:
    if engine is not None:
        engine.close()


def _classify_error(error: BaseException | None) -> LeaseEnd:
    if isinstance(error, KeyboardInterrupt):
        return "returned"
    if isinstance(error, IntegrityError):
        return "integrity"
    is_of_job = isinstance(error, InvalidInputError) and not isinstance(error, ForbiddenError)
    return "invalid" if is_of_job else "engine"
