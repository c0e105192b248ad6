"""The digits example's TFLite graph with LiteRT's profiler, by samples per call, and the predictor's outputs."""

from importlib import import_module

import numpy as np
from trying import OUT, described, port, predictors, write

litert = import_module("harness.tracing.litert")  # which ``trying`` makes importable
INPUT, OUTPUT = "serving_default_input:0", "StatefulPartitionedCall:0"
CALLS = 3
MODEL = described(("litert", "tflite"), ["digits.tflite"], [port(INPUT, None, 8, 8, 1)], [OUTPUT])
PLACE = predictors.Place(1, "cpu")

predictors.import_framework(MODEL)
found = {}
for size in (1, 4):
    batches = [{INPUT: np.random.default_rng(seed).random((size, 8, 8, 1), np.float32)} for seed in range(CALLS)]
    profiler, predictor = litert.open_profiler(OUT, MODEL, PLACE), predictors.load(MODEL, OUT, PLACE)
    profiler.predict({INPUT: batches[0][INPUT][:1]})  # a shape that the calls of the profile replace
    profiler.predict(batches[0])
    profiler.start()
    answers = [profiler.predict(batch)[OUTPUT] for batch in batches]
    profile = profiler.finish()
    found[str(size)] = {
        "rows": [[row.type, row.source_type, [list(tensor.shape) for tensor in row.outputs]] for row in profile.rows],
        "times": list(profile.durations.shape),
        "incomplete": profile.incomplete,
        "equal": [
            answer.tobytes() == predictor.predict(batch)[OUTPUT].tobytes()
            for answer, batch in zip(answers, batches, strict=True)
        ],
    }
    predictor.close()
write(found)
