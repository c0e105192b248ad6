"""Builds of small wheels on the real Debian base: everything but the size of the wheels is as in a real build."""

import hashlib
import multiprocessing
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.images.base_image import debian_tarball, open_base
from benchlock.evaluator.images.build import Builder, BuildOptions, BuiltImage, layer_path
from benchlock.evaluator.images.image_layers import docker_archive
from benchlock.evaluator.images.wheels import host_target, running_python
from benchlock.registry.manifests.manifest_types import File
from benchlock.registry.versions.semantic_version import Version
from tests.support.system.same_image import another_user

Builds = tuple[BuiltImage, ...]


@pytest.fixture
def build(index: Path, tmp_path: Path, store: LocalStore) -> Callable[..., BuiltImage]:
    """A function that builds with the options given; by default without layers."""
    assert index.exists()
    workspace = tmp_path / "workspace"
    workspace.mkdir()

    def built(spec: str, admits: Callable[[Version], bool] | None = None, **options: object) -> BuiltImage:
        chosen = BuildOptions(**{"layers": False, **options})  # type: ignore[arg-type]
        return Builder(workspace, tmp_path / "cache", store, SILENT).build(spec, chosen, admits)

    return built


def files(image: BuiltImage) -> tuple[File, ...]:
    assert isinstance(image.image.files, tuple)
    return image.image.files


def layers(image: BuiltImage) -> list[Digest]:
    assert isinstance(image.image.platforms[0].layers, tuple)
    return [Digest(layer) for layer in image.image.platforms[0].layers]


def test_two_builds_in_two_folders_are_one_image(small_builds: Builds) -> None:
    one, two, _ = small_builds
    assert one.image_id is not None
    assert (one.image, one.framework) == (two.image, two.framework)
    for file in files(one):
        assert (one.folder / file.path).read_bytes() == (two.folder / file.path).read_bytes()


def test_another_user_with_another_umask_builds_the_same_image(
    small_builds: Builds, base_tarball: Path, index: Path, tmp_path: Path
) -> None:
    """By the command, as its users call it; the index has the same wheels as that of the builds above."""
    assert index.exists()
    found = another_user(("onnxruntime==1.31.1", "--requirement", "same", "--base", str(base_tarball)), tmp_path)
    assert found == small_builds[0].image_id


def test_a_second_framework_costs_only_its_own_layers(small_builds: Builds) -> None:
    one, two = layers(small_builds[0]), layers(small_builds[2])
    # The base, the harness's seven, flatbuffers and same, below the framework: engines share what is equal from below.
    assert one[:10] == two[:10]
    assert (len(one), len(two), one[10] != two[10]) == (11, 11, True)


def test_the_manifests_say_what_was_built(small_builds: Builds) -> None:
    built = small_builds[0]
    label = f"linux-{host_target().arch}-cpu"
    framework = built.framework
    assert (framework.name, framework.version, framework.predictor) == ("onnxruntime", "1.31.1", "onnxruntime")
    assert (built.image.name, built.image.version) == ("onnxruntime-cpu", "1.4.0")
    assert built.image.provides.version == "1.31.1"
    (platform,) = built.image.platforms
    assert (platform.device, platform.python, platform.wheels) == ("cpu", running_python(), f"pylock.{label}.toml")
    paths = [file.path for file in files(built)]
    assert paths[:2] == [f"pylock.{label}.toml", "wheels/flatbuffers-25.1-py3-none-any.whl"]
    assert [str(file.role) for file in files(built)] == ["wheels"] * 11 + ["config"] + ["layer"] * 11


def test_every_file_has_its_digest_and_its_source(small_builds: Builds) -> None:
    built = small_builds[0]
    for file in files(built):
        assert file.source == f"./{file.path}"
        assert hashlib.sha256((built.folder / file.path).read_bytes()).hexdigest() == file.sha256
    (config,) = (file for file in files(built) if file.role == "config")
    assert built.image_id == f"sha256:{config.sha256}"


def test_a_layer_holds_one_wheel_with_byte_code_of_the_final_path(small_builds: Builds) -> None:
    with tarfile.open(small_builds[0].folder / layer_path(layers(small_builds[0])[2]), "r:") as archive:
        names = [name for name in archive.getnames() if "dist-info" not in name]
        (cached,) = (name for name in names if name.endswith(".pyc"))
        stream = archive.extractfile(cached)
        assert stream is not None
        content = stream.read()
    package = "opt/benchlock/site-packages/numpy"
    assert [name for name in names if name.endswith(".py")] == [f"{package}/__init__.py", f"{package}/bad.py"]
    assert f"/{package}/__init__.py".encode() in content


def test_without_layers_there_are_wheels_alone(build: Callable[..., BuiltImage]) -> None:
    built = build("onnxruntime==1.31.1")
    assert built.image_id is None
    assert {str(file.role) for file in files(built)} == {"wheels"}


def test_without_a_version_the_newest_release_that_fits_is_built(
    build: Callable[..., BuiltImage], make_wheel: Callable[..., Path]
) -> None:
    """The harness needs numpy 2, SemVer has no post-releases, and the caller admits no 1.33."""
    make_wheel("onnxruntime", "1.34.0", requires=("numpy<2",))
    make_wheel("onnxruntime", "1.33.0")
    make_wheel("onnxruntime", "1.32.0.post1")
    built = build("onnxruntime", lambda version: version.minor != 33)
    assert (built.framework.version, built.image.provides.version) == ("1.31.1", "1.31.1")


def test_if_no_release_fits_those_that_were_tried_are_named(build: Callable[..., BuiltImage]) -> None:
    with pytest.raises(InvalidInputError, match=r"no release of onnxruntime fits; not 1\.31\.1"):
        build("onnxruntime", lambda _: False)


def test_without_layers_a_base_is_refused(build: Callable[..., BuiltImage], tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="without layers has no base"):
        build("onnxruntime==1.31.1", base=tmp_path / "base.tar")


def test_wheels_with_different_files_of_one_name_are_refused(
    build: Callable[..., BuiltImage], base_tarball: Path
) -> None:
    with pytest.raises(InvalidInputError) as raised:
        build("onnxruntime==1.31.1", layers=True, base=base_tarball, requirements=("same", "other"))
    for part in ("same-1.0", "other-1.0", "opt/benchlock/site-packages/tests/__init__.py"):
        assert part in str(raised.value)


def test_wheels_for_accelerators_are_no_image_for_cpus(
    build: Callable[..., BuiltImage], make_wheel: Callable[..., Path]
) -> None:
    make_wheel("torch", "2.13.0", requires=("nvidia-cublas",))
    make_wheel("nvidia-cublas", "13.0")
    with pytest.raises(InvalidInputError, match="nvidia-cublas"):
        build("pytorch==2.13.0")


def test_a_framework_without_a_semantic_version_is_refused(
    build: Callable[..., BuiltImage], make_wheel: Callable[..., Path]
) -> None:
    make_wheel("torch", "2.13.0.post1")
    with pytest.raises(InvalidInputError, match="post"):
        build("pytorch==2.13.0.post1")


@pytest.mark.parametrize("content", [b"", b"no tar" * 1000, b"\x1f\x8b\x08\x00"])
def test_a_base_that_is_no_tar_is_refused(build: Callable[..., BuiltImage], tmp_path: Path, content: bytes) -> None:
    (tmp_path / "base.tar").write_bytes(content)
    with pytest.raises(InvalidInputError, match="uncompressed tar"):
        build("onnxruntime==1.31.1", layers=True, base=tmp_path / "base.tar")


def test_a_base_that_is_missing_is_refused(build: Callable[..., BuiltImage], tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot read the base"):
        build("onnxruntime==1.31.1", layers=True, base=tmp_path / "absent.tar")


def test_a_base_without_python_is_unavailable(build: Callable[..., BuiltImage], tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "empty.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("file"))
    with pytest.raises(UnavailableError, match="base's python3"):
        build("onnxruntime==1.31.1", layers=True, base=tmp_path / "empty.tar")


def test_without_mmdebstrap_a_base_must_be_given(
    tmp_path: Path, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError) as raised:
        debian_tarball(tmp_path / "base.tar", tmp_path / "cache", store, SILENT)
    assert all(part in str(raised.value) for part in ("mmdebstrap", "another base", "without layers"))
    assert list(store.list()) == []


def test_the_debian_base_is_made_once(tmp_path: Path, base_tarball: Path, request: pytest.FixtureRequest) -> None:
    kept = request.config.cache.mkdir("benchlock-base")
    (pointer,) = kept.glob("base-*.json")
    before = pointer.stat().st_mtime_ns
    debian_tarball(tmp_path / "again.tar", kept, LocalStore(kept / "blobs"), SILENT)
    assert pointer.stat().st_mtime_ns == before
    assert (tmp_path / "again.tar").stat().st_size == base_tarball.stat().st_size


def _open_as_nobody(tarball: Path, folder: Path) -> None:
    os.setgid(65534)
    os.setuid(65534)
    allowed = subprocess.run(["unshare", "--user", "--map-root-user", "true"], check=False, stderr=subprocess.DEVNULL)
    if allowed.returncode:
        with pytest.raises(UnavailableError, match="chroot"):
            open_base(tarball, folder / "root")
    else:
        assert open_base(tarball, folder / "root").target == host_target()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_who_is_not_root_enters_the_base_in_a_user_namespace(base_tarball: Path) -> None:
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        folder.chmod(0o777)
        shutil.copy(base_tarball, folder / "base.tar")
        child = multiprocessing.get_context("fork").Process(target=_open_as_nobody, args=(folder / "base.tar", folder))
        child.start()
        child.join()
        assert child.exitcode == 0
    finally:
        shutil.rmtree(folder)


@pytest.mark.engine
def test_an_engine_loads_it_as_the_same_image_and_runs_it(
    small_builds: Builds, tmp_path: Path, engine_url: str
) -> None:
    built, store, docker = small_builds[0], LocalStore(tmp_path / "blobs"), ["docker", "--host", engine_url]
    order = [store.put_file(built.folder / layer_path(layer)) for layer in layers(built)]
    (config,) = (file for file in files(built) if file.role == "config")
    with (tmp_path / "archive.tar").open("wb") as archive:
        archive.writelines(docker_archive((built.folder / config.path).read_bytes(), order, store))
    load = [*docker, "load", "--quiet", f"--input={tmp_path / 'archive.tar'}"]
    answer = subprocess.run(load, check=True, capture_output=True, text=True).stdout
    assert answer.strip() == f"Loaded image ID: {built.image_id}"
    code = "import onnxruntime, numpy, PIL.Image, mlperf_loadgen; print(numpy.__file__, numpy.f('a'))"
    hardened = ["run", "--rm", "--network=none", "--read-only", "--user=65534", "--cap-drop=ALL", str(built.image_id)]
    done = subprocess.run([*docker, *hardened, "python3", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "/opt/benchlock/site-packages/numpy/__init__.py True\n"
