"""Files that ``tensorflow_models`` made, loaded with a number of threads: with two, where this is the script."""

import json
import sys
from typing import Any

import tensorflow as tf
from trying import OUT, floats, lite_threads, port, threads


def loaded_with(count: int) -> dict[str, Any]:
    """What is recorded, and what TensorFlow says of itself; a process can be asked with one number alone."""

    def told(_: object) -> list[int]:
        found = tf.config.threading
        return [found.get_intra_op_parallelism_threads(), found.get_inter_op_parallelism_threads()]

    given = ([port("x", None, 2)], ["y"], {"x": floats(1, 2)})
    tables = json.loads((OUT / "tables.json").read_text())
    return {
        "threads": threads(("tensorflow", "keras"), "dense.keras", *given, runtime=told, counts=[count]),
        "threads, lite": lite_threads(("tensorflow", "tflite"), tables, [count]),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(loaded_with(2)))
