"""Schedules of the learning rate, as factors of the optimizer's own rate."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any


def find_rate_factor(schedule: Mapping[str, Any], step: int, steps_an_epoch: int) -> float:
    """Return the factor of the learning rate of a step.

    The warm-up is that of P. Goyal et al., "Accurate, Large Minibatch SGD" (2017), the cosine that of I. Loshchilov and
    F. Hutter, "SGDR" (2017), without restarts.

    Args:
        schedule: The settings of the schedule, with times in epochs.
        step: The number of the step, from 0.
        steps_an_epoch: The number of steps of an epoch.
    """
    warmup = schedule["warmup"]
    if step + 1 < warmup * steps_an_epoch:
        return float((step + 1) / (warmup * steps_an_epoch))
    epoch = step / steps_an_epoch
    if schedule["name"] == "constant":
        return 1.0
    if schedule["name"] == "step":
        return float(schedule["factor"] ** bisect_right(schedule["milestones"], epoch))
    progress = min(max((epoch - warmup) / (schedule["epochs"] - warmup), 0.0), 1.0)
    share = 1.0 - progress if schedule["name"] == "linear" else (1.0 + math.cos(math.pi * progress)) / 2.0
    return float(schedule["final"] + (1.0 - schedule["final"]) * share)
