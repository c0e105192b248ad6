"""Quality by epoch, as the middle and the range of several repeats."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchlock.evaluator.charts.axes import linear_axis
from benchlock.evaluator.charts.plots import Plot, dash_of, number_series
from benchlock.evaluator.charts.svg import MUTED, Chart, line, path


@dataclass(frozen=True, slots=True)
class QualityCurve:
    """The quality after ``epochs``: its median over repeats, and the least and the greatest of them."""

    name: str
    epochs: tuple[float, ...]
    middle: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


def draw_curves(
    name: str,
    title: str,
    description: str,
    curves: Sequence[QualityCurve],
    target: float | None,
    order: Sequence[str] = (),
) -> Chart:
    """Draw quality by epoch, with a band from the least to the greatest, and the target.

    Args:
        name: The name of the chart.
        title: Its title.
        description: Its finding.
        curves: The curves, at least one, each with a value.
        target: The quality to reach; None if it is not one for all.
        order: The names of all series of the page, as for ``number_series``.
    """
    epochs = [epoch for curve in curves for epoch in curve.epochs]
    values = [value for curve in curves for value in (*curve.low, *curve.high)]
    axis = linear_axis(
        "quality on the evaluated split", [*values, *([] if target is None else [target])], zero=False, is_share=True
    )
    names = [curve.name for curve in curves]
    numbers = number_series(names, order)
    plot = Plot(linear_axis("epochs", epochs), axis, names, has_lines=True, numbers=numbers)
    for series, curve in zip(numbers, curves, strict=True):
        upper, lower = (_place(plot, curve.epochs, part) for part in (curve.high, curve.low))
        plot.elements.append(path([*upper, *reversed(lower)], series, is_area=True))
    for series, curve in zip(numbers, curves, strict=True):
        plot.elements.append(path(_place(plot, curve.epochs, curve.middle), series, dash=dash_of(series)))
    if target is not None:
        height = plot.at_y(target)
        plot.elements.append(line((plot.left, plot.right), (height, height), color=MUTED, dash="2 3", width=1.6))
        plot.draw_note(plot.left + 8, height - 6, "target")
    return plot.finish(name, title, description)


def _place(plot: Plot, xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
    return [(plot.at_x(x), plot.at_y(y)) for x, y in zip(xs, ys, strict=True)]
