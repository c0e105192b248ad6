"""The entry point of the command line: exit codes, and errors as one clear message."""

import gc
import os
import sys
import traceback
from itertools import pairwise
from typing import TYPE_CHECKING

from benchlock.api.cli.output import VERBOSE, print_version, say_lines, settings, show_error
from benchlock.api.error_codes import EXIT_INTERRUPTED, EXIT_UNAVAILABLE, fault_of
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError

if TYPE_CHECKING:
    from click import ClickException

COLLECT_EVERY = 100_000
"""Allocated minus freed containers between two runs of the garbage collector."""

VERSION_FLAGS = (["--version"], ["-V"])


class UserInterrupt(BenchlockError):  # noqa: N818 - a reaction to Ctrl-C, not an error
    """A command that the user interrupted."""

    code = "interrupted"


def main() -> None:
    """Run the command line in ``sys.argv`` and exit with its code.

    The version is printed before any import that it does not need.
    """
    if sys.argv[1:] in VERSION_FLAGS:
        print_version()
        return

    # Nearly all allocations of a command are modules, which live to its end. Repeated garbage collection while they
    # load, and once more at exit, took a quarter of the CPU time of a short command.
    gc.set_threshold(COLLECT_EVERY)
    code = run(sys.argv[1:])
    gc.freeze()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code. Every failure is shown as one message, without a traceback."""
    import click  # noqa: PLC0415 - unused by --version

    from benchlock.api.cli.command_group import benchlock  # noqa: PLC0415 - as above

    settings.format, settings.verbosity = "table", VERBOSE if os.environ.get("BENCHLOCK_DEBUG") else 0
    settings.notices.clear()
    words = arguments or ["--help"]
    try:
        outcome = benchlock.main(args=words, prog_name="benchlock", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort) as interrupt:
        show_error(UserInterrupt(str(interrupt) or "interrupted"), as_json=_wants_json(arguments))
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has gone, and Python must not flush to the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_UNAVAILABLE
    except Exception as error:  # noqa: BLE001 - every failure is shown as one message
        if settings.verbosity >= VERBOSE:
            say_lines("".join(traceback.format_exception(error)).rstrip())
        clear_error = explain_error(error)
        show_error(clear_error, as_json=_wants_json(arguments))
        return fault_of(clear_error).exit_code
    return outcome if isinstance(outcome, int) else 0


def _wants_json(arguments: list[str]) -> bool:
    """Check whether an error is printed as JSON, even if it occurred before all options were parsed."""
    is_requested = {"--json", "--format=json"} & {*arguments} or ("--format", "json") in pairwise(arguments)
    return settings.format == "json" or bool(is_requested)


def explain_error(error: Exception) -> BenchlockError:
    """Convert any exception into an error with a message, a location and a next step."""
    from click import ClickException  # noqa: PLC0415 - as above

    if isinstance(error, BenchlockError):
        return error
    if isinstance(error, ClickException):
        return InvalidInputError(error.format_message(), next_step=_help_step(error))
    if isinstance(error, OSError):
        where = str(error.filename) if error.filename else None
        return UnavailableError(f"system error: {error.strerror or error}", where=where)
    return UnavailableError(
        f"internal error: {type(error).__name__}: {error}",
        next_step="run the command again with --verbose and report its output",
    )


def _help_step(error: "ClickException") -> str:
    """Return the help command that describes the misused command."""
    context = getattr(error, "ctx", None)
    if context is None or context.parent is None:
        return "benchlock --help lists commands and options"
    lists = "commands" if getattr(context.command, "commands", None) else "arguments and options"
    return f"{context.command_path} --help lists {lists}"


if __name__ == "__main__":
    main()
