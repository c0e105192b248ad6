"""Facts about file contents that a lock depends on: questions, and answers of bounded size."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchlock.registry.inspection.formats.image_documents import ListedWheel
from benchlock.registry.names import Kind


@dataclass(frozen=True, slots=True)
class ComparedLabels:
    """Labels files of an output and of the dataset, and the class index less the label.

    The dataset's may be COCO's annotations, whose ``categories`` name labels too.
    """

    output: int
    model: str
    dataset: str
    offset: int
    categories: bool = False


@dataclass(frozen=True, slots=True)
class ResampledField:
    """A field of the dataset that the input ``index`` of the model resamples: its file, of ``format``, and its key."""

    index: int
    path: str
    key: str
    format: str


@dataclass(frozen=True, slots=True)
class FileQuestions:
    """What a lock asks of the files of its artifacts. Paths may lie inside trees.

    Attributes:
        index: The index of the split, where somebody has to know whether its samples have labels.
        compared: Labels files that must agree.
        wheels: Locks of wheels of the image.
        resampled: Fields that must not be sounds as numbers, which say no rate.
    """

    index: str | None = None
    compared: tuple[ComparedLabels, ...] = ()
    wheels: tuple[str, ...] = ()
    resampled: tuple[ResampledField, ...] = ()

    def files(self) -> tuple[tuple[Kind, str], ...]:
        """Return kind and path of every file that is read."""
        index: list[tuple[Kind, str]] = [] if self.index is None else [("dataset", self.index)]
        labels: list[tuple[Kind, str]] = []
        for one in self.compared:
            labels += [("model", one.model), ("dataset", one.dataset)]
        wheels: list[tuple[Kind, str]] = [("image", path) for path in self.wheels]
        resampled: list[tuple[Kind, str]] = [("dataset", one.path) for one in self.resampled]
        return tuple(dict.fromkeys((*index, *labels, *wheels, *resampled)))


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A name that stands at ``expected`` in the dataset, and in the model, less its offset, at ``found``."""

    name: str
    expected: int
    found: int


@dataclass(frozen=True, slots=True)
class LabelComparison:
    """How two labels files differ.

    Attributes:
        count: The number of names that stand at other places.
        shift: The distance that all of them share; None where they share none, or where there are none.
        shown: The first of them.
    """

    count: int = 0
    shift: int | None = None
    shown: tuple[Disagreement, ...] = ()


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The answers to ``FileQuestions``.

    Attributes:
        label_columns: The columns ``label`` and ``mask``, as far as the first sample of the index fills them.
        compared: One comparison for each question.
        wheels: The wheels of each lock of wheels, by its path.
        without_rate: The inputs that would resample sounds as numbers.
    """

    label_columns: tuple[str, ...] = ()
    compared: tuple[LabelComparison, ...] = ()
    wheels: Mapping[str, tuple[ListedWheel, ...]] = field(default_factory=dict)
    without_rate: tuple[int, ...] = ()
