"""The reference page of settings: ``python -m tests.house.configuration_page FILE``."""

import sys
from pathlib import Path

from benchlock.api.settings import KEYS, MAX_FILE_BYTES, SETTINGS, Setting

_HEAD = f"""\
# Configuration

Reference: every environment variable and every key of a configuration file. `make configuration` generates this page.

## Precedence

1. A command-line option, such as `--registry`
2. An environment variable
3. The project file: `benchlock.toml` in the current folder, else in the nearest folder above it that has one
4. The user file: `$XDG_CONFIG_HOME/benchlock/config.toml`, by default `~/.config/benchlock/config.toml`
5. The default

An empty value counts as not set.

## Configuration files

```toml
# ~/.config/benchlock/config.toml
registry = "https://bench.example.org"
token_file = "~/.config/benchlock/token"
trusted_registries = ["https://bench.example.org", "~/work"]
```

```toml
# benchlock.toml of a project
registry = "https://bench.example.org"
```

Relative paths are relative to the folder of the file, and `~` is the home folder. Unknown keys are errors, and a file
has at most {MAX_FILE_BYTES:,} bytes. A file must not contain a token or a password. `database` and `store` in a file
apply to new registries only.

A project file may come from a stranger, so it can set only {{project}}. The registry that it selects must be in
`trusted_registries` of the user file: a server by its URL, or a folder that contains it. Otherwise every command that
needs a registry is refused (exit 1).
"""


def generate() -> str:
    """Return the text of the page."""
    ours = [setting for setting in SETTINGS if setting.variable.startswith("BENCHLOCK_") and not setting.key]
    foreign = [setting for setting in SETTINGS if not setting.variable.startswith("BENCHLOCK_") and not setting.key]
    project = " and ".join(f"`{setting.key}`" for setting in KEYS.values() if setting.in_project)
    return "\n".join(
        (
            _HEAD.replace("{project}", project),
            "## Keys and their variables",
            "",
            "| key | variable | value | default | where | meaning |",
            "|---|---|---|---|---|---|",
            *map(_key_row, KEYS.values()),
            "",
            "Examples:",
            "",
            "```toml",
            *(f"{setting.key} = {setting.example}" for setting in KEYS.values()),
            "```",
            "",
            "## Variables without a key",
            "",
            *_table(ours),
            "",
            "benchlock warns about an unknown variable whose name resembles one of these.",
            "",
            "## Variables of other tools",
            "",
            *_table(foreign),
            "",
        )
    )


def _key_row(setting: Setting) -> str:
    variable = f"`{setting.variable}`" if setting.variable else "none"
    cells = (f"`{setting.key}`", variable, setting.type, setting.default, setting.used_by, setting.description)
    return f"| {' | '.join(cells)} |"


def _table(settings: list[Setting]) -> list[str]:
    rows = [
        f"| `{setting.variable}` | {setting.type} | {setting.default} | {setting.used_by} | {setting.description} |"
        for setting in settings
    ]
    return ["| variable | value | default | where | meaning |", "|---|---|---|---|---|", *rows]


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else "docs/reference/configuration.md").write_text(
        generate(), encoding="utf-8"
    )
