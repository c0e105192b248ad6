"""The program that runs inside the container: steps, predictors, accuracy and performance phases.

It reads a job folder and writes an output folder; it needs no network, registry or SQL. It imports nothing of benchlock
outside this folder, and uses relative imports, because it also runs from a zipapp as ``harness``.
"""

import time

VERSION = "1.7.0"
STARTED_NS = time.monotonic_ns()
"""The monotonic clock in nanoseconds at the import of this package, which is imported first."""
