"""The synthetic catalogues: the same at every making, and each request has the answer that it was made for."""

import hashlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from benchlock.artifacts.errors import UnknownNameError
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.database.engine import open_engine
from benchlock.registry.lock.lock_assembly import question_of
from benchlock.registry.manifests import parse_published
from benchlock.registry.manifests.manifest_content import content as content_of
from benchlock.registry.requests.evaluation_request import parse_request
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.resolution.resolver import Resolution, resolve
from benchmarks.resolving import index, plain
from benchmarks.resolving.documents import content, request
from benchmarks.resolving.filling import DATABASE, PUBLISHED_AT, fill
from benchmarks.resolving.measuring import environment, run
from benchmarks.resolving.universes import ANY, Ask, Universe, version
from tests.support.api.commands import Commands
from tests.support.registry.digits import written

PLAIN = Universe()
TITLES = [ask.title for ask in PLAIN.asks()]
SOLVABLE = ("easy", "backtracking", "deep")
SMALL = (
    Universe(models=20, frameworks=20, images=20, datasets=5),
    Universe(blocks=3, models=20, frameworks=20, images=20, datasets=5, crowded=True),
    Universe(models=60, frameworks=20, images=20, datasets=5, distinct=True),
    Universe(models=20, frameworks=60, images=20, datasets=5),
    Universe(models=20, frameworks=20, images=60, datasets=5),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("universe") / "registry"
    fill(PLAIN, home)
    return home


@pytest.fixture
def catalogue(home: Path) -> Iterator[Catalogue]:
    engine = open_engine(home / DATABASE)
    yield Catalogue(engine, lambda: PUBLISHED_AT)
    engine.dispose()


def asked(universe: Universe, title: str) -> Ask:
    return next(ask for ask in universe.asks() if ask.title == title)


def brute_force(universe: Universe, ask: Ask) -> dict[str, str] | None:
    """The best of all combinations that fit: newest model, then framework, then the first image name, then newest."""
    images = [one for name in universe.images_of(ask.needs) for one in universe.of("image", name)]
    fitting = [
        (model.number, framework.number, [-ord(letter) for letter in image.name], image.number, image.name)
        for model, framework, image in product(
            universe.of("model", ask.model), universe.of("framework", ask.needs), images
        )
        if model.number in ask.versions
        and model.requires is not None
        and framework.number in model.requires[1]
        and framework.number in (ask.framework or ANY)
        and image.provides == (ask.needs, framework.number)
        and ask.arch in image.arches
        and (ask.image is None or (image.name == ask.image[0] and image.number in ask.image[1]))
    ]
    if not fitting:
        return None
    model, framework, _, number, image = max(fitting)
    return {
        "model": f"{ask.model} {version(model)}",
        "framework": f"{ask.needs} {version(framework)}",
        "image": f"{image} {version(number)}",
        "dataset": f"{ask.dataset} {version(universe.datasets - 1)}",
    }


def chosen(found: Resolution) -> dict[str, str]:
    return {kind: f"{one.name} {one.version}" for kind, one in found.chosen().items()}


def test_there_are_eight_requests_of_a_thousand_versions() -> None:
    assert PLAIN.size == len(list(PLAIN.releases())) == 1000
    assert len(set(TITLES)) == 8


def test_a_universe_is_the_same_at_every_making() -> None:
    made = (b"\n".join(content(release) for release in Universe().releases()) for _ in range(2))
    assert len({hashlib.sha256(text).hexdigest() for text in made}) == 1


@pytest.mark.parametrize("universe", [PLAIN, *SMALL], ids=repr)
def test_every_manifest_is_what_publishing_makes_of_it(universe: Universe) -> None:
    texts = [content(release) for release in universe.releases()]
    assert len(set(texts)) == len(texts) == universe.size
    assert all(content_of(parse_published(text)) == text for text in texts[:: max(1, len(texts) // 100)])


@pytest.mark.parametrize("title", TITLES)
def test_the_resolver_gives_each_request_the_answer_it_was_made_for(title: str, catalogue: Catalogue) -> None:
    ask = asked(PLAIN, title)
    question = question_of(parse_request(request(ask, 1), "request"))
    with catalogue.snapshot() as snapshot:
        if title in SOLVABLE:
            assert chosen(resolve(question, snapshot, {})) == PLAIN.answer(ask)
            return
        assert PLAIN.answer(ask) is None
        with pytest.raises(UnknownNameError if title == "missing" else ConflictError) as caught:
            resolve(question, snapshot, {})
        if title == "missing":
            assert "ladder-0000" in str(caught.value.next_step)


def test_the_command_locks_what_fits_and_refuses_what_does_not(home: Path, tmp_path: Path) -> None:
    commands = Commands(home)
    easy, conflict = (written(tmp_path / f"{n}.yaml", request(PLAIN.asks()[n], 1)) for n in (0, 4))
    assert commands.done("lock", easy, "-o", tmp_path / "easy.lock")["model"]["version"] == "1.99.0"
    commands.error(3, "lock", conflict, "-o", tmp_path / "conflict.lock")


@pytest.mark.parametrize("title", TITLES)
@pytest.mark.parametrize("universe", SMALL, ids=repr)
def test_the_known_answer_is_that_of_brute_force_and_of_resolvelib(universe: Universe, title: str) -> None:
    ask = asked(universe, title)
    expected = brute_force(universe, ask)
    assert universe.answer(ask) == expected
    assert plain.answer(universe, ask).chosen == expected
    assert (expected is not None) == (title in SOLVABLE)


@pytest.mark.parametrize("universe", [one for one in SMALL if not one.crowded], ids=repr)
def test_the_packages_made_for_uv_are_solvable_where_the_universe_is(universe: Universe, tmp_path: Path) -> None:
    with index.served(universe) as address:
        for ask in universe.asks():
            process = run(index.command(ask, address, tmp_path), environment(), 60)
            assert process is not None
            assert (process.code == 0) == (ask.title in SOLVABLE), (ask, process)
            if process.code == 0:
                assert process.output.count("==") == 4
            else:
                assert "No solution found" in process.output
