"""One run of a lock on this host: choose, verify, execute, record."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import UNSET

from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.digest import Digest, from_hex
from benchlock.artifacts.display import Progress
from benchlock.artifacts.errors import BenchlockError
from benchlock.evaluator.images.environment import Environments
from benchlock.evaluator.records.evidence_status import SCRATCH
from benchlock.evaluator.records.run_model import (
    CONTAINER_CPU,
    Isolation,
    Run,
    RunEnd,
    RunEndedError,
    RunId,
    RunStart,
    new_run_id,
)
from benchlock.evaluator.runner.container import ContainerRun, provide_image, run_container
from benchlock.evaluator.runner.engine import Engine
from benchlock.evaluator.runner.host_platform import (
    Choice,
    Host,
    check_code,
    choose_cpus,
    choose_isolation,
    choose_platform,
    this_host,
)
from benchlock.evaluator.runner.job_folder import Place, job_document, write_job
from benchlock.evaluator.runner.lock_verification import check_agreement, read_manifests, verify_lock
from benchlock.evaluator.runner.orphans import claim_folder
from benchlock.evaluator.runner.outcome import Ending, Failure
from benchlock.evaluator.runner.output_limits import choose_quota
from benchlock.evaluator.runner.process import ProcessRun, birth, run_process
from benchlock.evaluator.runner.stages import (
    PREDICT,
    SCORE,
    UNLABEL,
    GoldenTask,
    StageOutcome,
    Stages,
    Trial,
    choose_order_seed,
    has_stages,
    read_trial,
)
from benchlock.evaluator.runner.wall_clock import WallClock, move_phases
from benchlock.evaluator.statistics.metric_model import definitions_of
from benchlock.evaluator.workflows.run_record import Attempt, make_interrupted_end, make_run_end
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests import Model


class Journal(Protocol):
    """Where runs are recorded: the registry's ``Records``, or a lease on a job."""

    def start(self, start: RunStart) -> None:
        """Record that a run starts. Raises as ``Records.start``."""

    def finish(self, run: RunId, end: RunEnd) -> None:
        """Record a run's end. Raises as ``Records.finish``."""

    def get(self, run: RunId) -> Run:
        """The run as recorded."""

    def count(self, lock: Digest) -> int:
        """How many runs of a lock there are."""


@dataclass(frozen=True, slots=True)
class HostTurn:
    """A run's turn on a host that measures one at a time: who else begins one finds the host taken.

    The name is that of the container, whose labels say whose it is; descriptors are ``inherited`` by a process, as long
    as it or a part of it lives. ``enter`` is told when the measurement begins, and when its end is to be recorded.
    """

    name: str
    labels: Mapping[str, str]
    inherited: tuple[int, ...]
    enter: Callable[[Literal["measuring", "storing"]], None]


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs locks. ``home`` is the registry's folder, below which job folders and environments lie.

    ``say`` is told what a person should know, such as an isolation that was not asked for. ``keep`` stores a lock: only
    once all that it names was found, since a stored lock says what must never be collected. With a ``turn`` the run has
    the host to itself. ``clock`` counts where the time goes.
    """

    home: Path
    store: FileStore
    records: Journal
    engine: Engine | None
    now: Callable[[], datetime]
    progress: Progress
    say: Callable[[str], None]
    keep: Callable[[Lock], object]
    turn: HostTurn | None = None
    clock: WallClock = field(default_factory=WallClock)

    def run(
        self,
        lock: Lock,
        *,
        isolation: Isolation | None = None,
        allow_code: bool = False,
        original: Run | None = None,
        part_of: Mapping[str, Any] | None = None,
    ) -> Run:
        """Run ``lock`` and return the record: of a failure too. ``original`` is the run that this one repeats.

        ``part_of`` goes into the record: of which repetition or comparison the run is a part.

        Raises:
            IntegrityError: bytes are not what the lock says; nothing was started.
            UnavailableError: this host cannot run it; or the engine failed, and the failed run is recorded.
            InvalidInputError: the lock needs another version of benchlock.
            KeyboardInterrupt: it was interrupted; the cancelled run is recorded.
        """
        host = this_host()
        choice = choose_platform(lock, host.facts, None if original is None else original.start.platform_name)
        attempt = replace(self._decide(lock, host, choice, isolation, allow_code=allow_code), part_of=part_of)
        with self.clock.part("recording"):
            self.keep(lock)
        with claim_folder(self.home, attempt.id) as place:
            with self.clock.part("recording"):
                self.records.start(self._start(attempt, host))
            self._conduct(attempt, place)
        with self.clock.part("recording"):
            return self.records.get(attempt.id)

    def trial(
        self, lock: Lock, making: GoldenTask | None, *, isolation: Isolation | None = None, allow_code: bool = False
    ) -> Trial:
        """Check the golden tensors of the lock's model, or make some; nothing is recorded, and the lock is not stored.

        Tensors are made in stages, as a run with quality metrics has them: the model sees no labels. Hold
        ``store.writing()``: nothing names what the lock names. Raises as ``run``.
        """
        host = this_host()
        attempt = self._decide(lock, host, choose_platform(lock, host.facts), isolation, allow_code=allow_code)
        with claim_folder(self.home, attempt.id) as place:
            told = {"golden": "check" if making is None else asdict(making)}
            document = job_document(lock, attempt.platform.device, attempt.verified.manifests) | told
            start = self._starter(attempt, place, {})
            with self._measuring():
                if making is not None:
                    stages = Stages(lock, attempt.verified, place, document, self.store, self.say, start, order_seed="")
                    return read_trial(stages.run(), lock.limits.seconds)
                write_job(place, document, lock, attempt.verified, self.store, self.say, parts=("model",))
                return read_trial(StageOutcome(start(place, PREDICT), place.output), lock.limits.seconds)

    def _decide(self, lock: Lock, host: Host, choice: Choice, asked: Isolation | None, *, allow_code: bool) -> Attempt:
        """Everything else that can be refused, is refused here."""
        definitions_of(lock)
        platform = choice.platform
        isolation, word = choose_isolation(asked, platform, self.engine)
        model = read_manifests(lock, self.store)["model"]
        assert isinstance(model, Model)
        check_code(model, isolation, allow_code=allow_code)
        cpus = choose_cpus(host.cpus, lock.limits.cpus)
        for said in filter(None, (choice.word, word)):
            self.say(said)
        with self.clock.part("verification"):
            verified = verify_lock(lock, platform, self.store, self.progress)
        check_agreement(lock, platform, verified.manifests)
        at = self.now()
        return Attempt(new_run_id(at), at, lock, platform, isolation, cpus, verified, choice.accelerators)

    def _start(self, attempt: Attempt, host: Host) -> RunStart:
        platform = attempt.platform
        container = attempt.isolation == "container"
        return RunStart(
            id=attempt.id,
            lock=attempt.lock.id,
            attempt=self.records.count(attempt.lock.id) + 1,
            isolation=attempt.isolation,
            platform={name: getattr(platform, name) for name in ("os", "arch", "device", "python")},
            host=host.fingerprint(self.engine.version if self.engine and container else None),
            process={"pid": os.getpid(), "born": birth(os.getpid())},
            started_at=attempt.at,
            image_id=platform.image_id if container and platform.image_id is not UNSET else None,
        )

    def _conduct(self, attempt: Attempt, place: Place) -> None:
        """Run, and record how it ended, whatever happens."""
        timings = {"verification": attempt.verified.seconds}
        try:
            finished = self._execute(attempt, place, timings)
            ending = finished.ending
            timings |= {"start": ending.started_in, "run": ending.ran, "watching_cpu": ending.watched}
            if ending.cpu is not None:
                timings[CONTAINER_CPU] = ending.cpu
            with self.store.writing():
                with self.clock.part("evidence"):
                    end = make_run_end(attempt, finished, timings, self.store, self.home / SCRATCH, self.now())
                move_phases(self.clock, PREDICT, end.timings)
                with self.clock.part("recording"):
                    self._finish(attempt, end)
        except KeyboardInterrupt:
            self._finish(attempt, make_interrupted_end(attempt, None, timings, self.now()))
            raise
        except Exception as error:
            reason = error.what if isinstance(error, BenchlockError) else f"{type(error).__name__}: {error}"
            self._finish(attempt, make_interrupted_end(attempt, Failure("engine", reason), timings, self.now()))
            raise

    def _finish(self, attempt: Attempt, end: RunEnd) -> None:
        with suppress(RunEndedError):  # it was interrupted after its end was recorded
            self.records.finish(attempt.id, end)

    def _execute(self, attempt: Attempt, place: Place, timings: dict[str, float]) -> StageOutcome:
        """Run the harness, in stages where the lock has them."""
        lock, verified = attempt.lock, attempt.verified
        document = job_document(lock, attempt.platform.device, verified.manifests)
        if has_stages(lock):
            start = self._starter(attempt, place, timings)
            begun = time.perf_counter()
            with self._measuring(), self.clock.part("job"):
                finished = Stages(
                    lock, verified, place, document, self.store, self.say, start, choose_order_seed(lock)
                ).run()
            # What is not spent in a stage is spent on the folders between them.
            stages = sum(timings.get(stage, 0.0) for stage in (UNLABEL, PREDICT, SCORE))
            timings["job"] = time.perf_counter() - begun - stages
            return finished
        with self._timed(timings, "job"):
            write_job(place, document, lock, verified, self.store, self.say)
        start = self._starter(attempt, place, timings)
        with self._measuring():
            return StageOutcome(start(place, PREDICT), place.output)

    def _starter(self, attempt: Attempt, place: Place, timings: dict[str, float]) -> Callable[[Place, str], Ending]:
        """Provide the environment, and return what runs the harness of a stage in it."""
        limits, platform = attempt.lock.limits, attempt.platform
        quotas = {
            UNLABEL: choose_quota(place.root, limits.bytes, attempt.verified.size),
            PREDICT: choose_quota(place.root, limits.bytes),
        }
        quotas[SCORE] = quotas[PREDICT]
        if attempt.isolation == "process":
            environments = Environments(self.home / "environments", self.store, self.progress)
            with self._timed(timings, "environment"):
                wheels = [(wheel.path, from_hex(wheel.sha256)) for wheel in platform.wheels]
                python = environments.materialise(wheels, platform.python)
            inherited = () if self.turn is None else self.turn.inherited
            process = ProcessRun(python, limits, attempt.cpus, attempt.accelerators, inherited)

            def start_process(place: Place, stage: str) -> Ending:
                with self._timed(timings, stage):
                    ending = run_process(replace(process, quota=quotas[stage]), place, self.progress)
                self.clock.move(stage, f"{stage}.start", ending.started_in)
                return ending

            return start_process
        assert self.engine is not None
        with self._timed(timings, "image"):
            image = provide_image(platform, self.engine, self.store, self.progress)
        what = ContainerRun(attempt.id, image.id, platform.python, limits, attempt.cpus, attempt.accelerators)
        if self.turn is not None:
            what = replace(what, name=self.turn.name, labels=self.turn.labels)
        engine = self.engine

        def start_container(place: Place, stage: str) -> Ending:
            with self._timed(timings, stage):
                confined = replace(what, quota=quotas[stage], keeps_output=stage != PREDICT)
                ending = run_container(engine, confined, place, self.progress)
            self.clock.move(stage, f"{stage}.start", ending.started_in)
            return ending

        return start_container

    @contextmanager
    def _measuring(self) -> Iterator[None]:
        if self.turn is not None:
            self.turn.enter("measuring")
        yield
        if self.turn is not None:
            self.turn.enter("storing")

    @contextmanager
    def _timed(self, timings: dict[str, float], name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            with self.clock.part(name):
                yield
        finally:
            timings[name] = time.perf_counter() - start
