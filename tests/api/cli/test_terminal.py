"""What a terminal shows: colors, tables that fit it, and progress; and that a pipe gets none of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.api.terminal import clean_environment, show_on_terminal

VERDICTS = """
from benchlock.api.cli import output
from benchlock.artifacts.errors import InvalidInputError
output.print_table(("run", "outcome"), [("r1", "done"), ("r2", "failed"), ("r3", "taken by worker m1, measuring")])
output.echo("not reproduced, compared with r1", "not reproduced")
output.say("warning: old")
output.say_error(InvalidInputError("wrong", next_step="again"))
"""
PLAIN = """\
run  outcome
---  -----------------------------
r1   done
r2   failed
r3   taken by worker m1, measuring
not reproduced, compared with r1
"""
MESSAGES = "warning: old\nerror: wrong\n  next: again\n"
COLORED = (
    "\x1b[32mdone\x1b[0m",
    "\x1b[1;31mfailed\x1b[0m",
    "\x1b[34mtaken by worker m1, measuring\x1b[0m",
    "\x1b[1;31mnot reproduced\x1b[0m, compared",
    "\x1b[33mwarning:\x1b[0m old",
    "\x1b[1;31merror:\x1b[0m wrong",
)


def show_in_pipe(script: str, **variables: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=clean_environment(**variables), check=True
    )
    return done.stdout, done.stderr


def test_verdicts_and_errors_are_colored_on_a_terminal() -> None:
    shown = show_on_terminal(VERDICTS)
    for text in COLORED:
        assert text in shown


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}])
def test_a_terminal_without_colors_gets_the_words(variables: dict[str, str]) -> None:
    assert show_on_terminal(VERDICTS, 80, **variables) == PLAIN + MESSAGES


def test_a_pipe_gets_no_colors_unless_they_are_forced() -> None:
    assert show_in_pipe(VERDICTS) == (PLAIN, MESSAGES)
    assert show_in_pipe(VERDICTS, FORCE_COLOR="0") == (PLAIN, MESSAGES)
    forced = "".join(show_in_pipe(VERDICTS, FORCE_COLOR="1"))
    for text in COLORED:
        assert text in forced


TABLE = """
from benchlock.api.cli import output
reason = "the model is slower than its claim says on this machine with these settings"
output.print_table(("run", "state", "last problem"), [("run/01kam1v3mz4w0q3d5g7h9j2k4m", "failed", reason)])
"""


def test_a_table_fits_the_terminal() -> None:
    lines = show_on_terminal(TABLE, columns=70, NO_COLOR="1").splitlines()
    assert max(map(len, lines)) == 70
    assert lines[2].startswith("run/01kam1v3mz4w0q3d5g7h9j2k4m  failed  the model is ")
    assert lines[2].endswith("…")


def test_a_very_narrow_terminal_still_gets_whole_identifiers() -> None:
    line = show_on_terminal(TABLE, columns=20, NO_COLOR="1").splitlines()[2]
    assert line == "run/01kam1v3mz4w0q3d5g7h9j2k4m  failed  the model is slower…"


def test_a_piped_table_is_whole() -> None:
    assert show_in_pipe(TABLE)[0].splitlines()[2].endswith("with these settings")


TASKS = """
from threading import Timer, enumerate as list_threads
from benchlock.api.cli.output import Bars

def wait_for_bars():
    for thread in list_threads():
        if isinstance(thread, Timer):
            thread.join()

with Bars(delay=0).task("fetching [blobs]", 4) as advance:
    advance(2)
    wait_for_bars()
    with Bars(delay=0).task("verifying", 2):
        wait_for_bars()
"""


def test_tasks_have_bars_with_a_time_left() -> None:
    shown = show_on_terminal(TASKS, columns=120)
    assert "fetching [blobs]" in shown
    assert "verifying" in shown
    assert "ETA" in shown


QUICK = """
from benchlock.api.cli.output import Bars, settings
import sys
settings.verbosity = {verbosity}
with Bars(delay={delay}).task("fetching"):
    pass
assert "rich" not in sys.modules
"""


@pytest.mark.parametrize("quick", [{"verbosity": 0, "delay": 600}, {"verbosity": -1, "delay": 0}])
def test_a_short_task_and_a_quiet_one_show_nothing_and_load_nothing(quick: dict[str, int]) -> None:
    assert show_on_terminal(QUICK.format(**quick)) == ""


def test_a_dumb_terminal_gets_no_bar() -> None:
    assert show_on_terminal(TASKS, TERM="dumb") == ""


def test_a_result_in_a_file_stays_there_while_a_bar_is_on_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "result"
    script = f"import sys\nsys.stdout = open({str(path)!r}, 'w')\n{TASKS}        print('result')\n"
    assert "fetching" in show_on_terminal(script)
    assert path.read_text() == "result\n"
