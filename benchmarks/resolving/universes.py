"""Synthetic catalogues, the same at every making, and eight requests of them whose one right answer is known.

A universe is made of blocks of ten names: four models, two frameworks, two images, two datasets. Every name of a kind
has the same number of versions, ``1.0.0``, ``1.1.0``, …, called by their minor number below. M, F and I are the numbers
of versions of a model, a framework and an image.

Frameworks ``whole`` and ``half`` require nothing. What each image provides:

* ``whole-image`` alternates between the two ends of ``whole``: counted from its newest, image 2a provides framework
  ``F-1 - a*F//I`` and image 2a+1 provides framework ``a*F//I``; each on linux/amd64 and linux/arm64.
* ``half-image`` i provides version ``i * (F//2) // I`` of ``half``, whose newer half is in no image; on linux/amd64,
  and its oldest on linux/arm64 too.

What version m of each model requires, where ``at = m * F // M``:

* ``steady``: any ``whole``;  ``wide``: ``whole`` up to ``F-1 - (M-1-m)*F//M``, so that the newest admits them all;
* ``pinned``: ``half`` exactly ``at``;  ``ladder``: ``half`` from ``at`` on, in a ``distinct`` universe with an upper
  end of its own, beyond all that is published, so that no two versions ask the same.

Requests are of the block in the middle. A model can only name a framework that reads its format, so ``whole`` and
``half`` of that block are ``onnxruntime`` and ``litert``, which the models of all blocks require; the frameworks of
other blocks have a number in their names, and images of their own. In a ``crowded`` universe there are no others: every
image of every block provides versions of these two.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from benchlock.registry.artifact_names import Kind

PLATFORMS = ("amd64", "arm64")
FORMATS = {"onnxruntime": "onnx", "litert": "tflite"}
NAMES: dict[Kind, tuple[str, ...]] = {
    "dataset": ("pictures", "sounds"),
    "framework": ("half", "whole"),
    "image": ("half-image", "whole-image"),
    "model": ("ladder", "pinned", "steady", "wide"),
}
"""The ten names of a block, by kind."""


@dataclass(frozen=True, slots=True)
class Span:
    """The versions from ``low`` to below ``high``, by their minor numbers; without ``high`` all from ``low`` on."""

    low: int = 0
    high: int | None = None

    def __contains__(self, number: int) -> bool:
        return self.low <= number and (self.high is None or number < self.high)

    def __str__(self) -> str:
        """A constraint that means the same to benchlock and to Python's packaging tools."""
        if self.high == self.low + 1:
            return f"=={version(self.low)}"
        return f">={version(self.low)},<{'2.0.0' if self.high is None else version(self.high)}"


ANY = Span()


@dataclass(frozen=True, slots=True)
class Release:
    """One version to publish. ``requires`` is of a model, ``provides`` and ``arches`` of an image."""

    kind: Kind
    name: str
    number: int
    requires: tuple[str, Span] | None = None
    provides: tuple[str, int] | None = None
    arches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """A request: model and dataset by name, spans of versions, and the processor. ``image`` is a name and its span."""

    title: str
    model: str
    versions: Span
    dataset: str
    needs: str
    framework: Span | None = None
    image: tuple[str, Span] | None = None
    arch: str = "amd64"


@dataclass(frozen=True)
class Universe:
    """``blocks`` of ten names, with so many versions a name of each kind."""

    blocks: int = 1
    models: int = 100
    frameworks: int = 100
    images: int = 100
    datasets: int = 100
    distinct: bool = False
    crowded: bool = False

    @property
    def size(self) -> int:
        """How many versions there are."""
        return sum(self.count(kind) * len(self.names(kind)) for kind in NAMES)

    def count(self, kind: Kind) -> int:
        """The versions of each name of that kind."""
        counts: dict[Kind, int] = {
            "model": self.models,
            "framework": self.frameworks,
            "image": self.images,
            "dataset": self.datasets,
        }
        return counts[kind]

    def names(self, kind: Kind) -> list[str]:
        """The names of that kind, sorted."""
        return sorted({self._name(name, block) for name in NAMES[kind] for block in range(self.blocks)})

    def releases(self) -> Iterator[Release]:
        """Every version, by kind, name and number."""
        for kind in NAMES:
            for name in self.names(kind):
                yield from self.of(kind, name)

    def of(self, kind: Kind, name: str) -> list[Release]:
        """Every version of a name, oldest first; none of an unknown one."""
        if name not in self._known[kind]:
            return []
        stem, number = self._known[kind][name]
        return [self._release(kind, stem, number, index) for index in range(self.count(kind))]

    def framework_of(self, name: str) -> str:
        """The framework that a model of that name requires, or an image provides."""
        kind: Kind = "image" if name in self._known["image"] else "model"
        stem, number = self._known[kind][name]
        if kind == "image":
            return self._name(stem.removesuffix("-image"), number)
        return self._name("whole" if stem in ("steady", "wide") else "half", self.blocks // 2)

    def asks(self) -> tuple[Ask, ...]:
        """The eight requests.

        * easy: the newest of everything fits.
        * backtracking: the newer half of the model's versions requires what no image provides.
        * deep: the one image for the processor is the oldest, and only the oldest models go with what it provides.
        * missing: two letters of the model's name are exchanged.
        * conflict of two: the request pins a framework version that the pinned model excludes.
        * conflict of three: model, framework and image agree two by two, and not together.
        * conflict of ranges: nothing is pinned; no framework from the asked half is in an image, whatever the model.
        * deep conflict: as deep, without the models that go with the one image for the processor.
        """
        models, frameworks, images = self.models, self.frameworks, self.images
        first = next(index for index in range(models) if index * frameworks // models)
        pair = images - 2 - 2 * (images // 10)
        return (
            self._ask("easy", "steady"),
            self._ask("backtracking", "pinned"),
            self._ask("deep", "ladder", arch="arm64"),
            self._ask("missing", "laddre"),
            self._ask("conflict of two", "wide", _at(models // 10), _at(frameworks * 9 // 10)),
            self._ask(
                *("conflict of three", "wide", _at(models * 6 // 10), Span(frameworks * 4 // 10)),
                image=(self._middle("whole-image"), Span(pair, pair + 2)),
            ),
            self._ask("conflict of ranges", "ladder", ANY, Span(frameworks // 2)),
            self._ask("deep conflict", "ladder", Span(first), arch="arm64"),
        )

    def answer(self, ask: Ask) -> dict[Kind, str] | None:
        """What is chosen, ``NAME VERSION`` by kind, found by looking at every version; ``None`` where nothing fits."""
        offered = self._offered(ask)
        provided = sorted(offered)
        for model in reversed(self.of("model", ask.model)):
            assert model.requires is not None
            asked = ask.framework or ANY
            below = min(span.high or self.frameworks for span in (model.requires[1], asked))
            place = bisect_left(provided, below) - 1
            if model.number in ask.versions and place >= 0 and provided[place] >= max(model.requires[1].low, asked.low):
                image, number = offered[provided[place]]
                return {
                    "model": f"{ask.model} {version(model.number)}",
                    "framework": f"{ask.needs} {version(provided[place])}",
                    "image": f"{image} {version(number)}",
                    "dataset": f"{ask.dataset} {version(self.datasets - 1)}",
                }
        return None

    def images_of(self, framework: str) -> list[str]:
        """The names of the images that provide versions of the framework, sorted."""
        return [name for name in self.names("image") if self.framework_of(name) == framework]

    def _offered(self, ask: Ask) -> dict[int, tuple[str, int]]:
        """By framework number, the image that is preferred: the first name, and of it the newest version."""
        name, span = ask.image or ("", ANY)
        offered: dict[int, tuple[str, int]] = {}
        for image in reversed([name] if name else self.images_of(ask.needs)):
            for release in self.of("image", image):
                if release.number in span and ask.arch in release.arches and release.provides:
                    offered[release.provides[1]] = (image, release.number)
        return offered

    def _ask(
        self, title: str, model: str, versions: Span = ANY, framework: Span | None = None,
        *, image: tuple[str, Span] | None = None, arch: str = "amd64",
    ) -> Ask:  # fmt: skip
        needs = self._middle("whole" if model in ("steady", "wide") else "half")
        return Ask(title, self._middle(model), versions, self._middle("pictures"), needs, framework, image, arch)

    def _release(self, kind: Kind, stem: str, block: int, index: int) -> Release:
        name = self._name(stem, block)
        if kind == "model":
            return Release(kind, name, index, requires=(self.framework_of(name), self._required(stem, index)))
        if kind == "image":
            number, arches = self._provided(stem, index)
            return Release(kind, name, index, provides=(self.framework_of(name), number), arches=arches)
        return Release(kind, name, index)

    def _required(self, model: str, index: int) -> Span:
        at = index * self.frameworks // self.models
        match model:
            case "steady":
                return ANY
            case "wide":
                return Span(0, self.frameworks - (self.models - 1 - index) * self.frameworks // self.models)
            case "pinned":
                return _at(at)
            case _:
                return Span(at, self.frameworks + 1 + index if self.distinct else None)

    def _provided(self, image: str, index: int) -> tuple[int, tuple[str, ...]]:
        if image == "half-image":
            return index * (self.frameworks // 2) // self.images, PLATFORMS[: 1 if index else 2]
        from_newest = self.images - 1 - index
        from_end = from_newest // 2 * self.frameworks // self.images
        return (from_end if from_newest % 2 else self.frameworks - 1 - from_end), PLATFORMS

    def _middle(self, stem: str) -> str:
        return self._name(stem, self.blocks // 2)

    def _name(self, stem: str, block: int) -> str:
        if stem in NAMES["framework"] and (self.crowded or block == self.blocks // 2):
            return {"whole": "onnxruntime", "half": "litert"}[stem]
        return f"{stem}-{block:04}"

    @cached_property
    def _known(self) -> dict[Kind, dict[str, tuple[str, int]]]:
        """Stem and block of every name, by kind."""
        return {
            kind: {self._name(stem, block): (stem, block) for stem in stems for block in range(self.blocks)}
            for kind, stems in NAMES.items()
        }


def version(number: int) -> str:
    return f"1.{number}.0"


def _at(number: int) -> Span:
    return Span(number, number + 1)
