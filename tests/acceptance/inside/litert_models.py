"""The TFLite graphs that TensorFlow made, in LiteRT, as ``trying`` says."""

import json

from trying import OUT, lite_tried, write

write(lite_tried(("litert", "tflite"), json.loads((OUT / "tables.json").read_text())))
