"""Charts as SVG text and PNG: pure functions of numbers and names; reports and pages use them alike.

Each ``draw_*`` function takes the name of the chart, its title, its finding in a sentence, and frozen values, and
returns a ``Chart``: ``chart.svg()`` is a file or part of a page, whose style sheet includes ``theme.css``, and
``render_png(chart)`` a picture. The name of a chart is unique in its page, because its ids begin with it.

* ``icicle_charts``: ``draw_icicle`` (parts of a duration, which can be zoomed)
* ``line_charts``: ``draw_distributions`` (cumulative distributions with a band), ``draw_histogram``, ``draw_batches``,
  ``draw_roofline``
* ``matrix_charts``: ``draw_bars`` (bars, stacked bars, timelines), ``draw_heat_map``
* ``scatter_charts``: ``draw_points`` (points with intervals, or bubbles)

Further kinds with two axes start from ``Plot`` in ``plots``, which draws axes, legend and labels.
"""
