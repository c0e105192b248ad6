"""The confusion matrix of a run as a heat map."""

from typing import Final

from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.charts.matrix_charts import HeatMap, draw_heat_map
from benchlock.evaluator.charts.svg import Chart
from benchlock.evaluator.evidence.class_details import ClassDetails

MOST_CLASSES: Final = 30
"""The greatest number of classes of the heat map: more cells would have no room for their numbers."""
_EXACT: Final = 10_000
_UNDECIDED: Final = "none"


def chart_confusion(details: ClassDetails) -> Chart | None:
    """Draw the confusion matrix; None without one, or with more than 30 classes."""
    labels = [each.label for each in details.per_class]
    cells = {(label, predicted): count for label, predicted, count in details.confusion}
    if not cells or not 0 < len(labels) <= MOST_CLASSES:
        return None
    samples = {each.label: each.samples for each in details.per_class}
    columns: list[int | None] = [*labels, *([None] if any(predicted is None for _, predicted in cells) else [])]
    counts = [[cells.get((label, column), 0) for column in columns] for label in labels]
    heat_map = HeatMap(
        tuple(map(str, labels)),
        tuple(_UNDECIDED if column is None else str(column) for column in columns),
        tuple(
            tuple(count / max(samples[label], 1) if count else None for count in row)
            for label, row in zip(labels, counts, strict=True)
        ),
        tuple(tuple(_format(count) if count else "" for count in row) for row in counts),
        (0.0, 1.0),
    )
    scale = "Numbers are samples, an empty cell has none; the color is the share of the samples of the row."
    title, described = "Confusion matrix", f"{_find_confusion(details, samples)} {scale}"
    return draw_heat_map("confusion", title, described, heat_map, columns_title="decided as", rows_title="label")


def _find_confusion(details: ClassDetails, samples: dict[int, int]) -> str:
    """Return which class is taken for which other most often, in a sentence."""
    wrong = [cell for cell in details.confusion if cell[0] != cell[1]]
    if not wrong:
        return "No sample is taken for another class."
    label, predicted, count = max(wrong, key=lambda cell: cell[2])
    other = "has no decision" if predicted is None else f"is decided as {predicted}"
    return f"Most often, label {label} {other}: {count} of {format_count(samples.get(label, count), 'sample')}."


def _format(count: int) -> str:
    """Return a count in at most four characters up to a billion: exact below 10,000."""
    if count < _EXACT:
        return str(count)
    number, unit = next((count / size, unit) for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if count >= size)
    return f"{number:.0f}{unit}"
