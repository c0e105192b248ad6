"""The heat map of a confusion matrix has the numbers of the record, up to 30 classes."""

import re
from typing import Any
from xml.etree import ElementTree as ET

from benchlock.evaluator.evidence.class_details import ClassDetails, read_classes
from benchlock.evaluator.report.class_charts import chart_confusion


def details(classes: int, *cells: tuple[int, int | None, int]) -> ClassDetails:
    right = [(label, label, 20_000) for label in range(classes)]
    wrong = {label: sum(cell[2] for cell in cells if cell[0] == label) for label in range(classes)}
    per_class = [[label, 20_000 + wrong[label], 20_000, 20_000] for label in range(classes)]
    part: dict[str, Any] = {"per_class": per_class, "confusion": sorted([*right, *cells], key=str)}
    return read_classes({"classes": part})


def test_each_cell_has_its_number_and_the_color_of_its_share() -> None:
    chart = chart_confusion(details(3, (0, 2, 5000), (1, None, 7)))
    assert chart is not None
    assert chart.description.startswith("Most often, label 0 is decided as 2: 5000 of 25000 samples.")
    texts = [entry.text for entry in ET.fromstring(chart.svg()).iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("20k") == 3
    assert {"5000", "7", "none", "decided as", "label"} < {*texts}
    assert len(re.findall(r'<rect [^>]*fill="#[^"]*"/>', chart.svg())) == 5  # an empty cell has no color
    colors = dict(re.findall(r'fill="(#\w+)"/>\n<text[^>]*>(5000|7)<', chart.svg()))
    assert len(colors) == 2


def test_without_mistakes_the_chart_says_so() -> None:
    chart = chart_confusion(details(30))
    assert chart is not None
    assert chart.description.startswith("No sample is taken for another class.")


def test_there_is_no_chart_of_more_classes_or_without_a_matrix() -> None:
    assert chart_confusion(details(31, (0, 1, 5))) is None
    assert chart_confusion(ClassDetails()) is None
