"""Charts as PNG, by resvg: no browser, no font of the system, the same bytes on every machine of one version."""

from typing import Final

from resvg_py import svg_to_bytes

from benchlock.evaluator.charts.labels import FONT_FILE
from benchlock.evaluator.charts.svg import Chart

SCALE: Final = 2.0
"""The pixels of the picture per pixel of the chart."""


def render_png(chart: Chart) -> bytes:
    """Render a chart as PNG."""
    font = str(FONT_FILE)
    family = "DejaVu Sans"
    return svg_to_bytes(
        chart.svg(),
        zoom=SCALE,
        skip_system_fonts=True,
        font_files=[font],
        font_family=family,
        sans_serif_family=family,
    )
