"""Values with their units, as a person reads them."""

import pytest

from benchlock.evaluator.statistics.metric_types import format_change, format_value


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.00004432, "s", "44.3 µs"),
        (0.00169, "s", "1.69 ms"),
        (2.5, "s", "2.5 s"),
        (0.0009996, "s", "1 ms"),
        (0.9996, "s", "1 s"),
        (3600, "s", "3600 s"),
        (12345.6, "samples/s", "12346 samples/s"),
        (1234567.8, "samples/s", "1.235e+06 samples/s"),
        (0.0000123, "label", "1.23e-05 label"),
        (0.75, "fraction", "0.7500"),
        (84.64, "queries/s", "84.64 queries/s"),
        (1048576 * 132.5, "B", "132.5 MiB"),
        (24360, "B", "24360 B"),
        (None, "s", "-"),
    ],
)
def test_a_value_has_the_unit_that_keeps_its_digits(value: float | None, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.018, "+1.8%"), (-0.018, "-1.8%"), (-1e-9, "0.0%"), (0.0, "0.0%"), (-0.101, "-10.1%")]
)
def test_a_change_that_rounds_to_nothing_has_no_sign(share: float, text: str) -> None:
    assert format_change(share) == text
