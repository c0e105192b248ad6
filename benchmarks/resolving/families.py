"""Which universes are measured: one thing grows tenfold from step to step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.resolving.universes import Universe

STEPS = (1_000, 10_000, 100_000, 1_000_000)
ONE_NAME = 100_000
DISTINCT = 10_000
"""Requirements of one name that all differ: each is read, so the effort grows with their number, and more are over."""

BLOCK = 1_000


@dataclass(frozen=True, slots=True)
class Family:
    """Universes by the number that grows.

    Others are asked at the step ``others_at``, and ended after ``limit`` seconds; 0: they are not asked.
    """

    title: str
    about: str
    steps: dict[int, Universe]
    others_at: int
    limit: int


def families(largest: int) -> Iterator[Family]:
    """All of them, with no step beyond ``largest`` versions."""
    yield Family(
        "Catalogues of names with 100 versions each",
        "Columns: versions in the catalogue. 40 % of the names are models, 20 % each of the others.",
        {step: Universe(step // BLOCK) for step in STEPS if step <= largest},
        others_at=100_000,
        limit=60,
    )
    yield Family(
        "The same with two frameworks only, which every image provides",
        "Columns: versions in the catalogue, about; 20 % of them are images of one framework.",
        {step: Universe(step // 800, crowded=True) for step in STEPS[:3] if step <= largest},
        others_at=0,
        limit=0,
    )
    for title, grown, universe in _ONE_NAME:
        most = DISTINCT if title == _OWN_RANGES else ONE_NAME
        yield Family(
            f"Many versions of one name: a {title}",
            f"Columns: versions of each of the {grown} of the block that is asked; every other name has 100.",
            {count: universe(count) for count in STEPS if count <= min(largest, most)},
            others_at=10_000,
            limit=10,
        )


_OWN_RANGES = "model of which each requires its own range"
_ONE_NAME: tuple[tuple[str, str, Callable[[int], Universe]], ...] = (
    ("model", "models", lambda count: Universe(models=count)),
    (_OWN_RANGES, "models", lambda count: Universe(models=count, distinct=True)),
    ("framework", "frameworks", lambda count: Universe(frameworks=count)),
    ("image", "images", lambda count: Universe(images=count)),
    ("dataset", "datasets", lambda count: Universe(datasets=count)),
)
