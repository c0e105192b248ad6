"""The program that runs inside the container: steps, predictors, accuracy and performance phases.

It reads a job folder, writes an output folder, and knows nothing else: no network, no registry, no SQL. It imports
nothing of benchlock outside this folder, and relatively within it, since it also runs from a zipapp as ``harness``.
"""

import time

VERSION = "1.3.0"
STARTED_NS = time.monotonic_ns()
"""The monotonic clock when the interpreter came to the harness; what is imported first."""
