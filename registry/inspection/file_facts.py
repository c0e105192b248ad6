"""Facts about file contents that a lock depends on: questions, and answers of bounded size."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from benchlock.registry.artifact_names import Kind
from benchlock.registry.inspection.formats.image_documents import ListedWheel


@dataclass(frozen=True, slots=True)
class ComparedLabels:
    """The labels files of an output and of the dataset, to be compared.

    Attributes:
        output: The index of the output.
        model: The path of the model's labels file.
        dataset: The path of the dataset's labels file.
        offset: Class index minus dataset label.
        categories: Whether the dataset's file has COCO annotations, whose ``categories`` name the labels.
    """

    output: int
    model: str
    dataset: str
    offset: int
    categories: bool = False


@dataclass(frozen=True, slots=True)
class ResampledField:
    """The file, key and format of a dataset field that the input ``index`` of the model resamples."""

    index: int
    path: str
    key: str
    format: str


@dataclass(frozen=True, slots=True)
class FileQuestions:
    """The questions of a lock about the files of its artifacts; paths may lie inside trees.

    Attributes:
        index: The index of the split, if the lock depends on its labels.
        compared: Labels files that must agree.
        wheels: Locks of the wheels of the image.
        resampled: Fields that must not be sounds as numbers, which have no sampling rate.
    """

    index: str | None = None
    compared: tuple[ComparedLabels, ...] = ()
    wheels: tuple[str, ...] = ()
    resampled: tuple[ResampledField, ...] = ()

    def files(self) -> tuple[tuple[Kind, str], ...]:
        """Return kind and path of every file to be read."""
        index: list[tuple[Kind, str]] = [] if self.index is None else [("dataset", self.index)]
        labels: list[tuple[Kind, str]] = []
        for question in self.compared:
            labels += [("model", question.model), ("dataset", question.dataset)]
        wheels: list[tuple[Kind, str]] = [("image", path) for path in self.wheels]
        resampled: list[tuple[Kind, str]] = [("dataset", question.path) for question in self.resampled]
        return tuple(dict.fromkeys((*index, *labels, *wheels, *resampled)))


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A name at index ``expected`` in the dataset, and at ``found`` in the model after subtraction of the offset."""

    name: str
    expected: int
    found: int


@dataclass(frozen=True, slots=True)
class LabelComparison:
    """The difference of two labels files.

    Attributes:
        count: The number of names at different indices.
        shift: The distance that all of them share; None if they share none.
        shown: The first of them.
    """

    count: int = 0
    shift: int | None = None
    shown: tuple[Disagreement, ...] = ()


@dataclass(frozen=True, slots=True)
class FileFacts:
    """The answers to ``FileQuestions``.

    Attributes:
        label_columns: Which of the columns ``label`` and ``mask`` have a value in the first sample of the index.
        compared: One comparison per question.
        wheels: The wheels of each lock of wheels, by its path.
        without_rate: The inputs that would resample sounds as numbers.
    """

    label_columns: tuple[str, ...] = ()
    compared: tuple[LabelComparison, ...] = ()
    wheels: Mapping[str, tuple[ListedWheel, ...]] = field(default_factory=dict)
    without_rate: tuple[int, ...] = ()
