"""The entry point of the command line: exit codes, and errors as one clear message."""

import gc
import os
import sys
import traceback
from typing import TYPE_CHECKING

from benchlock.api.cli.output import show_error
from benchlock.api.error_codes import EXIT_INTERRUPTED, EXIT_UNAVAILABLE, fault_of
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError

if TYPE_CHECKING:
    from click import ClickException

COLLECT_EVERY = 100_000
"""Containers made, less those freed, between two searches for cycles."""

VERSION_FLAGS = (["--version"], ["-V"])


class UserInterrupt(BenchlockError):  # noqa: N818 - an answer to the user's own key, no error
    """The user ended the command."""

    code = "interrupted"


def main() -> None:
    """Run the command line in ``sys.argv`` and exit with its code.

    The version is answered before anything is imported that the answer does not need.
    """
    if sys.argv[1:] in VERSION_FLAGS:
        from benchlock.api.build_info import this_build  # noqa: PLC0415 - see above

        build = this_build()
        sys.stdout.write(f"benchlock {build.version} (commit {build.commit}, schema {build.schema})\n")
        return
    # Modules are nearly all that a command allocates, and they live to its end: searching them for cycles again and
    # again while they load, and once more on the way out, was a quarter of the CPU time of a short command.
    gc.set_threshold(COLLECT_EVERY)
    code = run(sys.argv[1:])
    gc.freeze()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command; the exit code. Every failure is shown as one message, without a traceback."""
    import click  # noqa: PLC0415 - the version needs none of it

    from benchlock.api.cli.commands import benchlock  # noqa: PLC0415

    words = arguments or ["--help"]
    try:
        outcome = benchlock.main(args=words, prog_name="benchlock", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        show_error(UserInterrupt("interrupted"), as_json="--json" in arguments)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has left; nothing more can be said to them, and Python must not try at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_UNAVAILABLE
    except Exception as error:  # noqa: BLE001 - whatever it is, a person gets one message
        shown = explain_error(error)
        show_error(shown, as_json="--json" in arguments)
        return fault_of(shown).exit_code
    return outcome if isinstance(outcome, int) else 0


def explain_error(error: Exception) -> BenchlockError:
    """The error as one that says what, where and the next step."""
    from click import ClickException  # noqa: PLC0415

    if isinstance(error, BenchlockError):
        return error
    if isinstance(error, ClickException):
        return InvalidInputError(error.format_message(), next_step=_help_step(error))
    if isinstance(error, OSError):
        where = str(error.filename) if error.filename else None
        return UnavailableError(f"the system refused: {error.strerror or error}", where=where)
    if os.environ.get("BENCHLOCK_DEBUG"):
        traceback.print_exception(error)
    return UnavailableError(
        f"a fault in benchlock itself: {type(error).__name__}: {error}",
        next_step="set BENCHLOCK_DEBUG=1, run it again, and report what it prints",
    )


def _help_step(error: "ClickException") -> str:
    """Return which help describes the command that was called wrongly."""
    context = getattr(error, "ctx", None)
    if context is None or context.parent is None:
        return "benchlock --help lists commands and options"
    lists = "commands" if getattr(context.command, "commands", None) else "arguments and options"
    return f"{context.command_path} --help lists {lists}"


if __name__ == "__main__":
    main()
