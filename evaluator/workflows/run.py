"""One run of a lock on this host: choose, verify, execute, record."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import UNSET

from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.digest import from_hex
from benchlock.artifacts.errors import BenchlockError
from benchlock.artifacts.user_output import Progress
from benchlock.evaluator.images.virtual_environment import Environments
from benchlock.evaluator.records.evidence_status import SCRATCH
from benchlock.evaluator.records.run_types import (
    CONTAINER_CPU,
    Isolation,
    Run,
    RunEnd,
    RunEndedError,
    RunJournal,
    RunStart,
    new_run_id,
)
from benchlock.evaluator.runner.container_engine import Engine
from benchlock.evaluator.runner.container_run import ContainerRun, provide_image, run_container
from benchlock.evaluator.runner.energy import describe_energy, read_energy
from benchlock.evaluator.runner.host_platform import (
    Choice,
    Host,
    HostTurn,
    check_code,
    choose_cpus,
    choose_isolation,
    choose_platform,
    this_host,
)
from benchlock.evaluator.runner.job_folder import RunFolders, job_document, write_job
from benchlock.evaluator.runner.lock_verification import check_agreement, find_evaluated, read_manifests, verify_lock
from benchlock.evaluator.runner.orphans import claim_folder
from benchlock.evaluator.runner.output_limits import choose_quota
from benchlock.evaluator.runner.process_run import ProcessRun, birth, run_process
from benchlock.evaluator.runner.run_outcome import Ending, Failure
from benchlock.evaluator.runner.run_stages import (
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
from benchlock.evaluator.statistics.metric_types import find_definitions
from benchlock.evaluator.workflows.run_record import Attempt, make_interrupted_end, make_run_end
from benchlock.registry.lock.lockfile import Lock


@dataclass(frozen=True, slots=True)
class Runner:
    """The runner of locks on this host.

    Attributes:
        home: The registry's folder, for job folders and environments.
        store: The blob store.
        records: Where runs are recorded.
        engine: The container engine; None without one.
        now: The calendar clock.
        progress: Shows the progress.
        say: Gets messages for people, such as an isolation that was not requested.
        keep: Stores a lock. It is called only after every blob of the lock was found, because a stored lock protects
            its blobs from collection.
        turn: The exclusive use of the host, if the host is shared.
        clock: Measures where the time goes.
    """

    home: Path
    store: FileStore
    records: RunJournal
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
        """Run ``lock`` and return the record, also of a failed run.

        Args:
            lock: The lock.
            isolation: The requested isolation; None for the default.
            allow_code: Whether code of the model may run without a container.
            original: The run that this one repeats.
            part_of: The repetition or comparison that the run belongs to, for its record.

        Raises:
            IntegrityError: Content does not match the lock; nothing was started.
            UnavailableError: This host cannot run it; or the engine failed, and the failed run is recorded.
            InvalidInputError: The lock needs another version of benchlock.
            KeyboardInterrupt: The run was interrupted; the cancelled run is recorded.
        """
        host = this_host()
        choice = choose_platform(lock, host.facts, None if original is None else original.start.platform_name)
        attempt = replace(self._decide(lock, host, choice, isolation, allow_code=allow_code), part_of=part_of)
        with self.clock.part("recording"):
            self.keep(lock)
        with claim_folder(self.home, attempt.id) as folders:
            with self.clock.part("recording"):
                self.records.start(self._start(attempt, host))
            self._conduct(attempt, folders)
        with self.clock.part("recording"):
            return self.records.get(attempt.id)

    def trial(
        self, lock: Lock, task: GoldenTask | None, *, isolation: Isolation | None = None, allow_code: bool = False
    ) -> Trial:
        """Check the golden tensors of the lock's model, or make some, without a record and without storing the lock.

        Tensors are made in stages, as in a run with quality metrics, so the model sees no labels. The caller must hold
        ``store.writing()``, because no row refers to the blobs of the lock.

        Args:
            lock: The lock.
            task: The tensors to make; None checks the existing ones.
            isolation: The requested isolation; None for the default.
            allow_code: Whether code of the model may run without a container.

        Raises:
            As ``run``.
        """
        host = this_host()
        attempt = self._decide(lock, host, choose_platform(lock, host.facts), isolation, allow_code=allow_code)
        with claim_folder(self.home, attempt.id) as folders:
            golden = {"golden": "check" if task is None else asdict(task)}
            document = job_document(lock, attempt.platform.device, attempt.verified.manifests) | golden
            start = self._prepare_start(attempt, folders, {})
            with self._mark_measurement():
                if task is not None:
                    stages = Stages(
                        lock, attempt.verified, folders, document, self.store, self.say, start, order_seed=""
                    )
                    return read_trial(stages.run(), lock.limits.seconds)
                write_job(folders, document, lock, attempt.verified, self.store, self.say, parts=("model",))
                return read_trial(StageOutcome(start(folders, PREDICT), folders.output), lock.limits.seconds)

    def _decide(
        self, lock: Lock, host: Host, choice: Choice, requested: Isolation | None, *, allow_code: bool
    ) -> Attempt:
        """Decide how to run, and raise every further refusal before anything starts."""
        find_definitions(lock)
        platform = choice.platform
        isolation, isolation_message = choose_isolation(requested, platform, self.engine)
        model = find_evaluated(read_manifests(lock, self.store))
        check_code(model, isolation, allow_code=allow_code)
        cpus = choose_cpus(host.cpus, lock.limits.cpus)
        for message in filter(None, (choice.word, isolation_message)):
            self.say(message)
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

    def _conduct(self, attempt: Attempt, folders: RunFolders) -> None:
        """Run, and record the end in any case."""
        timings = {"verification": attempt.verified.seconds}
        try:
            before = read_energy()
            outcome = self._execute(attempt, folders, timings)
            attempt = replace(attempt, energy=describe_energy(before, read_energy()))
            ending = outcome.ending
            timings |= {"start": ending.started_in, "run": ending.ran, "watching_cpu": ending.watched}
            if ending.cpu is not None:
                timings[CONTAINER_CPU] = ending.cpu
            with self.store.writing():
                with self.clock.part("evidence"):
                    end = make_run_end(attempt, outcome, timings, self.store, self.home / SCRATCH, self.now())
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
        with suppress(RunEndedError):  # the interruption came after the end was recorded
            self.records.finish(attempt.id, end)

    def _execute(self, attempt: Attempt, folders: RunFolders, timings: dict[str, float]) -> StageOutcome:
        """Run the harness, in stages if it has them."""
        lock, verified = attempt.lock, attempt.verified
        document = job_document(lock, attempt.platform.device, verified.manifests) | {"isolation": attempt.isolation}
        if has_stages(lock):
            start = self._prepare_start(attempt, folders, timings)
            started = time.perf_counter()
            with self._mark_measurement(), self.clock.part("job"):
                outcome = Stages(
                    lock, verified, folders, document, self.store, self.say, start, choose_order_seed(lock)
                ).run()
            # The time outside of the stages is spent on the folders between them.
            stages = sum(timings.get(stage, 0.0) for stage in (UNLABEL, PREDICT, SCORE))
            timings["job"] = time.perf_counter() - started - stages
            return outcome
        with self._measure_time(timings, "job"):
            write_job(folders, document, lock, verified, self.store, self.say)
        start = self._prepare_start(attempt, folders, timings)
        with self._mark_measurement():
            return StageOutcome(start(folders, PREDICT), folders.output)

    def _prepare_start(
        self, attempt: Attempt, folders: RunFolders, timings: dict[str, float]
    ) -> Callable[[RunFolders, str], Ending]:
        """Provide the environment, and return a function that runs the harness of a stage in it."""
        limits, platform = attempt.lock.limits, attempt.platform
        quotas = {
            UNLABEL: choose_quota(folders.root, limits.bytes, attempt.verified.size),
            PREDICT: choose_quota(folders.root, limits.bytes),
        }
        quotas[SCORE] = quotas[PREDICT]
        if attempt.isolation == "process":
            environments = Environments(self.home / "environments", self.store, self.progress)
            with self._measure_time(timings, "environment"):
                wheels = [(wheel.path, from_hex(wheel.sha256)) for wheel in platform.wheels]
                python = environments.materialise(wheels, platform.python)
            inherited = () if self.turn is None else self.turn.inherited
            process = ProcessRun(python, limits, attempt.cpus, attempt.accelerators, inherited)

            def start_process(folders: RunFolders, stage: str) -> Ending:
                with self._measure_time(timings, stage):
                    ending = run_process(replace(process, quota=quotas[stage]), folders, self.progress)
                self.clock.move(stage, f"{stage}.start", ending.started_in)
                return ending

            return start_process
        assert self.engine is not None
        with self._measure_time(timings, "image"):
            image = provide_image(platform, self.engine, self.store, self.progress)
        container_run = ContainerRun(attempt.id, image.id, platform.python, limits, attempt.cpus, attempt.accelerators)
        if self.turn is not None:
            container_run = replace(container_run, name=self.turn.name, labels=self.turn.labels)
        engine = self.engine

        def start_container(folders: RunFolders, stage: str) -> Ending:
            with self._measure_time(timings, stage):
                confined = replace(container_run, quota=quotas[stage], keeps_output=stage != PREDICT)
                ending = run_container(engine, confined, folders, self.progress)
            self.clock.move(stage, f"{stage}.start", ending.started_in)
            return ending

        return start_container

    @contextmanager
    def _mark_measurement(self) -> Iterator[None]:
        if self.turn is not None:
            self.turn.enter("measuring")
        yield
        if self.turn is not None:
            self.turn.enter("storing")

    @contextmanager
    def _measure_time(self, timings: dict[str, float], name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            with self.clock.part(name):
                yield
        finally:
            timings[name] = time.perf_counter() - start
