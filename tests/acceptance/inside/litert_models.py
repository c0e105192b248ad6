"""The TFLite graphs that TensorFlow made, in LiteRT, as ``trying`` says."""

import json

from trying import OUT, lite_threads, lite_tried, write

LITE, TABLES = ("litert", "tflite"), json.loads((OUT / "tables.json").read_text())

write({"threads": lite_threads(LITE, TABLES, (1, 2)), **lite_tried(LITE, TABLES)})
