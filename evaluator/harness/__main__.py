"""The entry point of python -m harness JOB OUT."""

import sys

from .main import main

if __name__ == "__main__":
    sys.exit(main())
