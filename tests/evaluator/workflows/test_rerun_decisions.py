"""How often decisions about times are wrong on simulated hosts, and how often they are made at all."""

import pytest

from benchlock.evaluator.workflows.rerun import REPEATS
from benchmarks.simulation.decisions import HOSTS, Host, answers_of, interleaved_answer, paired_t_answer, rerun_answer

EACH = pytest.mark.parametrize("host", HOSTS, ids=[host.name for host in HOSTS])
TIMES = 400
AT_MOST = 0.07
"""Of a truth of 5 %, two standard errors."""


@EACH
def test_a_rerun_is_seldom_judged_falsely(host: Host) -> None:
    """The spread between runs is 2 %, the margin 5 %."""
    alike = answers_of(lambda random: rerun_answer(host, random, 1.0, REPEATS), TIMES)
    beyond = answers_of(lambda random: rerun_answer(host, random, 1.05, REPEATS), TIMES)
    assert alike.count("different") / TIMES <= AT_MOST
    assert beyond.count("equivalent") / TIMES <= AT_MOST
    if host.name == "normal":
        assert alike.count("equivalent") / TIMES >= 0.7


@EACH
def test_an_interleaved_comparison_is_seldom_judged_falsely(host: Host) -> None:
    alike = answers_of(lambda random: interleaved_answer(host, random, 1.0, 0.02, 0.05), TIMES)
    beyond = answers_of(lambda random: interleaved_answer(host, random, 1.05, 0.02, 0.05), TIMES)
    same = answers_of(lambda random: interleaved_answer(host, random, 1.0, 0.01, None), TIMES)
    assert alike.count("different") / TIMES <= AT_MOST
    assert beyond.count("equivalent") / TIMES <= AT_MOST
    assert same.count("different") / TIMES <= AT_MOST


def test_a_difference_of_two_spreads_is_found_more_often_than_by_a_plain_paired_test() -> None:
    found = answers_of(lambda random: interleaved_answer(HOSTS[0], random, 1.02, 0.01, None), TIMES)
    plain = answers_of(lambda random: paired_t_answer(random, 1.02, 0.01), TIMES)
    assert found.count("different") / TIMES >= 0.8
    assert found.count("different") > plain.count("different")
