"""The entry point: global options, exit codes, and errors as one clear message."""

import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from api.cli.output import (
    EXIT_CONFLICT,
    EXIT_INTEGRITY,
    EXIT_INTERRUPTED,
    EXIT_INVALID,
    EXIT_REFUSED,
    EXIT_UNAVAILABLE,
    show_error,
)
from artifacts.errors import BenchlockError, IntegrityError, InvalidInputError, RefusedError, UnavailableError

if TYPE_CHECKING:
    import typer

VERSION_FLAGS = (["--version"], ["-V"])


class Interrupted(BenchlockError):  # noqa: N818 - an answer to the user's own key, no error
    """The user ended the command."""

    code = "interrupted"


def main() -> None:
    """Run the command line in ``sys.argv`` and exit with its code.

    The version is answered before anything is imported that the answer does not need.
    """
    if sys.argv[1:] in VERSION_FLAGS:
        from importlib.metadata import version  # noqa: PLC0415 - see above

        sys.stdout.write(f"benchlock {version('benchlock')}\n")
        return
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; the exit code. Every failure is shown as one message, without a traceback."""
    import typer  # noqa: PLC0415 - the version needs none of it

    words = arguments or ["--help"]
    try:
        outcome = typer.main.get_command(build_app()).main(args=words, prog_name="benchlock", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        show_error(Interrupted("interrupted"), as_json="--json" in arguments)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has left; nothing more can be said to them, and Python must not try at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_UNAVAILABLE
    except Exception as error:  # noqa: BLE001 - whatever it is, a person gets one message
        shown = explained(error)
        show_error(shown, as_json="--json" in arguments)
        return exit_code(shown)
    return outcome if isinstance(outcome, int) else 0


def explained(error: Exception) -> BenchlockError:
    """The error as one that says what, where and the next step."""
    from typer.exceptions import TyperException  # noqa: PLC0415

    if isinstance(error, BenchlockError):
        return error
    if isinstance(error, TyperException):
        return InvalidInputError(error.format_message(), next_step="benchlock --help lists commands and options")
    if isinstance(error, OSError):
        where = str(error.filename) if error.filename else None
        return UnavailableError(f"the system refused: {error.strerror or error}", where=where)
    if os.environ.get("BENCHLOCK_DEBUG"):
        traceback.print_exception(error)
    return UnavailableError(
        f"a fault in benchlock itself: {type(error).__name__}: {error}",
        next_step="set BENCHLOCK_DEBUG=1, run it again, and report what it prints",
    )


def exit_code(error: Exception) -> int:
    """The exit code of an error's class, as the command line's contract lists them."""
    from registry.conflicts import ConflictError  # noqa: PLC0415

    codes: tuple[tuple[type[Exception], int], ...] = (
        (ConflictError, EXIT_CONFLICT),
        (IntegrityError, EXIT_INTEGRITY),
        (UnavailableError, EXIT_UNAVAILABLE),
        (RefusedError, EXIT_REFUSED),
    )
    return next((code for kind, code in codes if isinstance(error, kind)), EXIT_INVALID)


def build_app() -> "typer.Typer":
    """The typer application with every command. Commands import what they need when they are called."""
    import typer  # noqa: PLC0415

    from api.cli import (  # noqa: PLC0415
        artifacts_commands,
        image_commands,
        import_commands,
        lock_commands,
        run_commands,
        upkeep_commands,
    )
    from api.cli.invocation import Invocation  # noqa: PLC0415

    app = typer.Typer(
        name="benchlock",
        help="A reproducible artifact registry and evaluation store for deep learning.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )

    @app.callback()
    def options(
        context: typer.Context,
        registry: Annotated[
            str, typer.Option(envvar="BENCHLOCK_REGISTRY", metavar="DIR|URL", help="An embedded registry's folder.")
        ] = "",
        *,
        json: Annotated[bool, typer.Option("--json", help="Print one JSON document to standard output.")] = False,
    ) -> None:
        context.obj = Invocation(registry=registry or str(default_registry()), as_json=json)

    for module in (artifacts_commands, lock_commands, run_commands, image_commands, import_commands, upkeep_commands):
        module.register(app)
    return app


def default_registry() -> Path:
    """``~/.local/share/benchlock``, or where XDG_DATA_HOME says."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "benchlock"
