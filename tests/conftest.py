"""Fixtures that several folders share: a private engine, a base root file system, a registry with real images."""

import fcntl
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine
from xdist.scheduler import LoadScopeScheduling

from benchlock.api.cli import output
from benchlock.evaluator.images.external_tools import workspace
from benchlock.migrations import upgrade
from benchlock.registry.database.engine import open_engine, open_server
from tests.support.api.commands import Commands, copied
from tests.support.api.warm import Warm
from tests.support.servers.azure_server import AZURITE_REASON, AzureServer, serving_azure
from tests.support.servers.object_server import ObjectServer, serving_objects
from tests.support.servers.postgresql import PostgresServer
from tests.support.servers.postgresql import serving as postgresql_serving
from tests.support.servers.registry_server import RegistryServer, serving
from tests.support.system.background_removal import remove_in_background
from tests.support.system.base import keep_base

# A slow machine fails no test: neither an example nor making the examples takes too long.
settings.register_profile("benchlock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("benchlock")

ROOT = Path(__file__).resolve().parent.parent
ENGINE = ROOT / "tests" / "support" / "system" / "engine.sh"
CASES_REASON = "cases: give the folder of real cases with --cases or BENCHLOCK_CASES"
MLFLOW_REASON = "mlflow: install it beside benchlock to test the export to it"
KUBECTL_REASON = "kubectl: overlays need the kustomize of kubectl 1.21 or later, which Debian 12 does not have"
ALL_IMAGES = (
    *(f"tests/acceptance/test_{name}.py" for name in ("code", "digits", "distributed", "formats", "networks")),
    *(f"tests/acceptance/test_{name}.py" for name in ("operators", "real_cases", "traces", "training")),
    "tests/evaluator/images/test_build_real.py",
)
"""What needs PyTorch's and TensorFlow's images too, which take minutes to make."""
LONG = (
    "tests/conformance/",
    "tests/properties/",
    "tests/evaluator/images/",
    "tests/evaluator/runner/",
    "tests/evaluator/workflows/test_run",
    "tests/evaluator/harness/",
)
"""Whose files take long though they hold few tests: none should be what a process ends with, alone."""
_skipped: list[str] = []
_folders: dict[pytest.FixtureDef[object], set[Path]] = {}
_config: list[pytest.Config] = []


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where the real cases are, and whether a skip is a failure."""
    parser.addoption("--cases", default=os.environ.get("BENCHLOCK_CASES"), help="folder of real models and data")
    parser.addoption("--services-seconds", type=float, default=4, help="how long several services are struck")
    parser.addoption("--flips", type=int, default=12, help="bits that the tests of damaged databases flip in each")
    parser.addoption(
        "--fail-on-skip",
        action="store_true",
        help="fail if anything but a test on real cases, MLflow, kustomize or Azurite is skipped",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Reserve no free space and force no colors: what is tested does not depend on this machine's disk and settings."""
    _config.append(config)
    os.environ.setdefault("BENCHLOCK_DISK_RESERVE", "0")
    os.environ.pop("FORCE_COLOR", None)
    # Byte code is kept: otherwise each command compiles benchlock anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


@pytest.fixture(autouse=True)
def _reset_output() -> None:
    """Start each test as a command starts: with no notice printed, in the default format."""
    output.settings.format, output.settings.verbosity = "table", 0
    output.settings.notices.clear()


class _ImagesOnce(LoadScopeScheduling):  # type: ignore[misc] # it ships no types
    """Of several processes (``-n``) one runs what needs every image, one the other commands; a file stays whole."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(ALL_IMAGES):
            return "all images"
        return "acceptance" if nodeid.startswith("tests/acceptance/") else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> _ImagesOnce:
    """How tests are spread when there are several processes: in the order in which they were collected."""
    config.option.loadscopereorder = False
    return _ImagesOnce(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For several processes, what takes longest comes first."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        first = (ALL_IMAGES, ("tests/acceptance/",), LONG, ("",))
        items.sort(key=lambda item: next(n for n, paths in enumerate(first) if item.nodeid.startswith(paths)))


def pytest_collection_finish() -> None:
    """Look seldom for cycles, and never among modules and tests: that took a quarter of what many tests took."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember what was skipped, for want of more than what may be missing; show at once what failed.

    A suite that is ended from outside, for its time, would otherwise keep the names of its failures to itself.
    """
    terminal = _config[0].pluginmanager.get_plugin("terminalreporter")
    if report.failed and terminal:  # the suite's processes have none
        terminal.write_line(f"\n{report.nodeid} ({report.when}) failed:\n{report.longreprtext}")
    if report.skipped and not any(
        reason in str(report.longrepr) for reason in (CASES_REASON, MLFLOW_REASON, KUBECTL_REASON, AZURITE_REASON)
    ):
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With ``--fail-on-skip``, a skipped test is a failed suite."""
    if session.config.getoption("--fail-on-skip") and _skipped and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    # The folders of a suite that passed are pytest's to remove, which waits for it; those of its processes are in it.
    if session.exitstatus == pytest.ExitCode.OK and session.config.option.basetemp is None:
        base: Path = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # as xdist asks for it
        remove_in_background(base.rename(base.with_name(f"removed-{base.name}")))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Note the folders that a fixture of a module or of the session makes, which are removed with it.

    One that it asks for by name while it is set up keeps its own.
    """
    if fixturedef.scope not in ("module", "session") or fixturedef.argname == "tmp_path_factory":
        return (yield)
    base: Path = request.getfixturevalue("tmp_path_factory").getbasetemp()
    before = set(base.iterdir())
    try:
        return (yield)
    finally:
        _folders[fixturedef] = set(base.iterdir()) - before - set().union(*_folders.values())


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[object]) -> None:
    """Remove the folders of a fixture with it: those of all modules would fill a small disk before the suite ends."""
    for folder in _folders.pop(fixturedef, ()):
        remove_in_background(folder)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say why the suite failed when skips are the reason."""
    if config.getoption("--fail-on-skip") and _skipped:
        terminalreporter.write_line(f"skipped, which counts as failed here: {', '.join(_skipped)}", red=True)


@pytest.fixture(scope="session")
def cases(request: pytest.FixtureRequest) -> Path:
    """The folder of real models and labelled data, or a skip that says how to give it."""
    folder = request.config.getoption("--cases")
    if not folder or not Path(folder).is_dir():
        pytest.skip(CASES_REASON)
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that the revisions made once, to be copied: making it waits for the disk many times."""
    path = tmp_path_factory.mktemp("schema") / "registry.db"
    engine = open_engine(path)
    upgrade(engine)
    engine.dispose()
    return path


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresServer]:
    """A PostgreSQL server of the suite's own, ended with the suite; tests take a database each."""
    with postgresql_serving() as server:
        yield server


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What is marked ``databases`` gets its ``database`` on SQLite, and once more on PostgreSQL."""
    if metafunc.definition.get_closest_marker("databases") and "database" in metafunc.fixturenames:
        metafunc.parametrize("database", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An empty registry's database, of the newest revision and the test's own: in a file, unless it is marked."""
    with ExitStack() as stack:
        if getattr(request, "param", "sqlite") == "sqlite":
            path = tmp_path / "registry.db"
            shutil.copy(request.getfixturevalue("schema"), path)
            engine = open_engine(path)
        else:
            server: PostgresServer = request.getfixturevalue("postgresql")
            engine = open_server(stack.enter_context(server.database()))
        stack.callback(engine.dispose)
        yield engine


@pytest.fixture(scope="session")
def engine_url() -> Iterator[str]:
    """A Docker engine of the suite's own, on a private socket, ended with the suite."""
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        pytest.skip("needs root and dockerd (Debian: apt-get install docker.io)")
    folder = Path(tempfile.mkdtemp(prefix="benchlock-engine-"))
    try:
        subprocess.run(["sh", ENGINE, "start", folder], check=True, stdout=subprocess.DEVNULL)
        yield f"unix://{folder}/docker.sock"
    finally:
        subprocess.run(["sh", ENGINE, "stop", folder], check=True)
        remove_in_background(folder)


@pytest.fixture(scope="session")
def registry_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """An OCI registry of the suite's own, ended with the suite; tests take a repository each."""
    with serving(tmp_path_factory.mktemp("registry-server")) as server:
        yield server


@pytest.fixture(scope="session")
def object_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """A server that speaks S3 of the suite's own, ended with the suite; tests take a prefix each."""
    with serving_objects(tmp_path_factory.mktemp("object-server")) as server:
        yield server


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """A server that speaks Azure Blob of the suite's own, ended with the suite; tests take a prefix each."""
    with serving_azure(tmp_path_factory.mktemp("azure-server")) as server:
        yield server


@pytest.fixture(scope="session")
def base_tarball(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The Debian base as a build makes it, kept between test sessions."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("needs mmdebstrap (Debian: apt-get install mmdebstrap)")
    kept = request.config.cache.mkdir("benchlock-base")
    with workspace(tmp_path_factory.mktemp("base")) as folder:
        keep_base(folder / "base.tar", kept)
        yield folder / "base.tar"


@pytest.fixture(scope="session")
def built_once(base_tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """A registry with images of ONNX Runtime and LiteRT, layers and all, which the suite's processes share to copy."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "images"
    folder.mkdir(exist_ok=True)
    commands, made = Warm(folder / "registry"), folder / "made"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            for framework in ("onnxruntime==1.31.1", "litert==2.3.0"):
                commands.done("image", "build", framework, "--base", base_tarball)
            made.touch()
    return commands


@pytest.fixture(scope="session")
def small_images(built_once: Commands, engine_url: str, tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """The same, of this process's own, with an engine that runs them."""
    return copied(built_once, tmp_path_factory.mktemp("images") / "registry", engine_url)


@pytest.fixture(scope="session")
def images(
    built_once: Commands, engine_url: str, base_tarball: Path, tmp_path_factory: pytest.TempPathFactory
) -> Commands:
    """Another copy, with PyTorch and TensorFlow too: what tests publish into it, no copy of the small one has."""
    commands = copied(built_once, tmp_path_factory.mktemp("all-images") / "registry", engine_url)
    for framework in ("pytorch==2.13.0", "tensorflow==2.21.0"):
        commands.done("image", "build", framework, "--base", base_tarball)
    return commands
