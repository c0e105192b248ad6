"""What each metric means, in a sentence for readers of forms; ``docs/reference/metrics.md`` has the definitions."""

from collections.abc import Mapping
from typing import Final

from benchlock.registry.manifests.metric_definitions import DEFINITIONS, GROUPS

_LATENCY: Final = "time of a query that {} % of the queries do not exceed"
_WHOLE: Final = ", with reading and preparing the sample"
_PERCENTILES: Final = {f"latency_p{share}": _LATENCY.format(share) for share in (50, 90, 99)}
MEANINGS: Final[Mapping[str, str]] = {
    "top1": "share of samples whose label is the class ranked first",
    "top5": "share of samples whose label is among the five classes ranked first",
    "map": "average precision of boxes, averaged over overlaps from 50 to 95 %",
    "map_50": "average precision of boxes that overlap by at least 50 %",
    "miou": "overlap of predicted and labelled pixels, averaged over classes",
    "f1_macro": "F1 of precision and recall, averaged over classes",
    "f1_weighted": "F1 of precision and recall, averaged over classes by their samples",
    "auroc": "chance that a sample of a class scores higher for it than another sample",
    "average_precision": "area below the curve of precision over recall, averaged over classes",
    "ece_15": "distance between confidence and share of right decisions, in 15 bins",
    "brier": "squared difference between probabilities and labels",
    "mae": "mean absolute error, in the unit of the labels",
    "rmse": "root of the mean squared error, in the unit of the labels",
    "latency": "the three percentiles of the time of a query",
    **_PERCENTILES,
    "throughput": "samples answered in a second",
    "pipeline_latency": f"the three percentiles of the time of a query{_WHOLE}",
    **{f"pipeline_{name}": text + _WHOLE for name, text in _PERCENTILES.items()},
    "pipeline_throughput": f"samples answered in a second{_WHOLE}",
    "throughput_per_core": "throughput divided by the CPUs of the limits",
    "cost_per_million": "cost of a million samples at the price of the machine",
    "optimal_batch": "smallest batch whose doubling raises throughput by 5 % or less",
    "peak_qps": "highest rate of arrivals that keeps the target latency",
    "cold_start": "time from the start of a process to its first answer",
    "cold_start_start": "part of the cold start: starting the process",
    "cold_start_import": "part of the cold start: importing libraries",
    "cold_start_load": "part of the cold start: loading the model",
    "cold_start_prepare": "part of the cold start: preparing the first sample",
    "cold_start_predict": "part of the cold start: the first call of the model",
    "cold_start_outputs": "part of the cold start: processing its outputs",
    "operator_latency": "median time of a call of the operator on prepared tensors",
    "wrapper_overhead": "time that a call by benchlock takes beside the operator itself",
    "wrapper_overhead_share": "wrapper_overhead divided by operator_latency",
    "error_l2": "difference from the reference, relative to its Euclidean norm",
    "error_linf": "largest difference from the reference, relative to its largest value",
    "gradient_error": "largest difference from the numeric gradient, relative to its largest value",
    "outputs_equal": "1 if every number of parts gives the same bits, else 0",
    "outputs_difference": "largest difference from the outputs of the fewest parts, relative to their largest value",
    "peak_memory": "most memory of the process while it computes the batch, for each number of parts",
    "batch_latency": "median time of the whole batch, for each number of parts",
    "epochs_to_quality": "median number of epochs until the target is reached",
    "epochs_to_quality_olympic": "mean number of epochs until the target, without the best and the worst repeat",
    "samples_to_quality": "median number of samples trained on until the target is reached",
    "time_to_quality": "median time from before the first sample to the evaluation that reaches the target",
    "cpu_time_to_quality": "processor time that passes within time_to_quality",
    "training_throughput": "samples trained on in a second",
    "training_cost": "cost of time_to_quality at the price of the machine",
    "final_quality": "median quality of the final weights of a repeat",
    "step_memory": "most memory that the tensors of a training step take at once",
    "memory_weights": "part of step_memory: weights and buffers",
    "memory_gradients": "part of step_memory: gradients",
    "memory_optimizer": "part of step_memory: the state of the optimizer",
    "memory_saved": "part of step_memory: what the forward pass saves for the backward pass",
    "memory_transient": "part of step_memory: the rest, such as the workspace of operators",
    "steps_per_second": "steps of all processes together in a second, by the slowest process of each step",
    "communication": "bytes that a process sends in a step, as its kernel counts them",
    "communication_logical": "bytes of gradients that a process exchanges in a step",
    "speedup": "time of a step in one process divided by that in all processes together",
    "efficiency": "speedup divided by the number of processes",
    "loss_difference": "largest difference of a step's mean loss from that of one process",
    "memory_growth": "memory that a training step does not release; a leak is above 0",
}
"""The meaning of each metric that a request can name, and of each group of metrics."""
_BETTER: Final = {"higher": "higher is better", "lower": "lower is better", "none": ""}


def describe_metric(name: str) -> str:
    """Describe a metric or a group: its meaning, its unit and which values are better; empty if it is unknown."""
    if name not in MEANINGS:
        return ""
    definition = DEFINITIONS[GROUPS.get(name, (name,))[0]]
    facts = ", ".join(filter(None, (definition.unit, _BETTER[definition.direction])))
    return f"{MEANINGS[name]} ({facts})"
