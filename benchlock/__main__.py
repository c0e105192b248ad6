"""The command line: ``python -m benchlock``."""

from benchlock.api.cli.main import main

main()
