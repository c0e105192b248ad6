"""Settings from environment variables and configuration files, and the table that describes all of them.

A command-line option has precedence over an environment variable, then the project file, the user file and the default.
``SETTINGS`` also yields ``docs/reference/configuration.md`` and the warning about misspelt variables.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchlock.artifacts.errors import InvalidInputError, RefusedError

PROJECT_FILE: Final = "benchlock.toml"
MAX_FILE_BYTES: Final = 65_536
_MAX_VALUES: Final = 1000
_PREFIX: Final = "BENCHLOCK_"
_LIKENESS: Final = 0.75
"""Likeness of a misspelt variable; lower ones are others', such as those that Kubernetes sets for a service."""
_PASSWORD: Final = re.compile(r"://[^/@]*:[^/@]*@|[?&]password=")


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        variable: Its environment variable; empty if it has none.
        type: The type of its value.
        default: Its value if it is not set, in words.
        description: What it does.
        used_by: Where it is used.
        key: Its key in a configuration file; empty if it has none.
        example: A value of the key, in TOML.
        in_project: Whether a project file may set it. Such a file may come from a stranger.
    """

    variable: str
    type: str
    default: str
    description: str
    used_by: str
    key: str = ""
    example: str = ""
    in_project: bool = False


SETTINGS: Final = (
    Setting(
        "BENCHLOCK_REGISTRY",
        "folder or URL",
        "`$XDG_DATA_HOME/benchlock`, else `~/.local/share/benchlock`",
        "The registry, if `--registry` does not select one. That of a project file must be in `trusted_registries`.",
        "every command",
        "registry",
        '"https://bench.example.org"',
        in_project=True,
    ),
    Setting(
        "",
        "list of folders and URLs",
        "none",
        "Registries that project files may select: the URLs of servers, and folders with everything in them.",
        "every command",
        "trusted_registries",
        '["https://bench.example.org", "~/work"]',
    ),
    Setting(
        "BENCHLOCK_TOKEN",
        "token",
        "none",
        "The token for a server. It has no key: files with settings are copied and committed.",
        "every command with a server",
    ),
    Setting(
        "BENCHLOCK_TOKEN_FILE",
        "path",
        "none",
        "A file with the token for a server. It is read again when the server rejects the token.",
        "every command with a server",
        "token_file",
        '"~/.config/benchlock/token"',
    ),
    Setting(
        "BENCHLOCK_DATABASE",
        "URL",
        "a file in the registry's folder",
        "The PostgreSQL database of a new registry. A file must not contain its password.",
        "commands that open a registry's folder",
        "database",
        '"postgresql://bench@db.example.org/bench"',
    ),
    Setting(
        "BENCHLOCK_STORE",
        "URL",
        "the registry's folder",
        "The OCI repository (`oci://`) or the bucket (`s3://`, `gs://`, `az://`) for the blobs of a new registry.",
        "commands that open a registry's folder",
        "store",
        '"oci://ghcr.io/acme/bench"',
    ),
    Setting(
        "BENCHLOCK_DOWNLOAD_TIME",
        "duration",
        "`24h`",
        "The maximum time of one download.",
        "`publish`, `image build`",
        "download_time",
        '"30m"',
        in_project=True,
    ),
    Setting(
        "BENCHLOCK_REDIRECT_HOSTS",
        "list of hosts",
        "none",
        "Hosts to which redirects may lead whatever their addresses. The variable separates them by spaces or commas.",
        "downloads, OCI repositories, servers with direct downloads",
        "redirect_hosts",
        '["files.example.org", "cache.example.org"]',
    ),
    Setting(
        "BENCHLOCK_DISK_RESERVE",
        "amount of bytes",
        "a part of the disk",
        "The disk space that must stay free. `0` disables the reserve.",
        "`serve`",
        "disk_reserve",
        '"8GiB"',
    ),
    Setting(
        "BENCHLOCK_UNNAMED_BYTES",
        "amount of bytes",
        "half of the disk",
        "The maximum bytes of one token in unfinished uploads and unreferenced blobs.",
        "`serve`",
        "unnamed_bytes",
        '"8GiB"',
    ),
    Setting(
        "BENCHLOCK_LEASE",
        "number of seconds",
        "`60`",
        "The duration of a lease, which determines heartbeats, waits and limits.",
        "`serve`, `worker` and the queue of a registry in a folder",
        "lease",
        "60",
    ),
    Setting(
        "BENCHLOCK_HOST_LOCK",
        "path",
        "`/run/lock/benchlock.measure`, else in the temporary folder",
        "The lock file of measurements. All workers of a host need the same one.",
        "`worker`",
        "host_lock",
        '"/run/lock/benchlock.measure"',
    ),
    Setting("BENCHLOCK_DEBUG", "any text", "off", "Print the traceback of an internal error.", "every command"),
    Setting("BENCHLOCK_COMMIT", "commit", "that of the checkout", "The commit of a build.", "`setup.py`, `Dockerfile`"),
    Setting(
        "BENCHLOCK_NAME", "host name", "none", "The name in the certificate of the service.", "`compose.team.yaml`"
    ),
    Setting(
        "BENCHLOCK_SUBNET",
        "subnet",
        "`10.219.7.0/24`",
        "The subnet of the proxy and the service.",
        "`compose.team.yaml`",
    ),
    Setting("BENCHLOCK_CASES", "path", "none", "The folder of real models and data.", "tests, benchmarks"),
    Setting("BENCHLOCK_KUBERNETES", "path", "none", "The kubeconfig of an administrator, for tests.", "tests"),
    Setting("BENCHLOCK_KILLS", "number", "`8`", "The number of killed workers.", "tests"),
    Setting("BENCHLOCK_SEED", "number", "random", "The seed of the order of kills.", "tests"),
    Setting("BENCHLOCK_DOCUMENT_EXAMPLES", "number", "`5`", "The number of requests per operation.", "tests"),
    Setting("HF_TOKEN", "token", "none", "The token for the Hugging Face Hub.", "`publish`"),
    Setting("HF_ENDPOINT", "URL", "the public Hub", "The address of the Hugging Face Hub.", "`publish`"),
    Setting("DOCKER_HOST", "URL", "the system's engine", "The Docker engine.", "`run`, `worker`, `doctor`"),
    Setting("DOCKER_CONFIG", "path", "`~/.docker`", "The folder of `config.json` with passwords.", "OCI repositories"),
    Setting("HTTPS_PROXY", "URL", "none", "The proxy; `HTTP_PROXY` and `NO_PROXY` also apply.", "every download"),
    Setting("XDG_CONFIG_HOME", "path", "`~/.config`", "The folder of the user file.", "every command"),
    Setting("XDG_DATA_HOME", "path", "`~/.local/share`", "The folder of the default registry.", "every command"),
    Setting(
        "XDG_CACHE_HOME", "path", "`~/.cache`", "The folder of cached blobs of a server.", "commands with a server"
    ),
)
KEYS: Final = {setting.key: setting for setting in SETTINGS if setting.key}
VARIABLES: Final = frozenset(setting.variable for setting in SETTINGS if setting.variable.startswith(_PREFIX))


class Value(NamedTuple):
    """The value of a setting as one text or several, and its origin in words.

    ``project`` is the project file that sets it, None if it comes from elsewhere.
    """

    texts: tuple[str, ...]
    origin: str
    project: Path | None = None

    @property
    def text(self) -> str:
        """Return the value as an environment variable has it."""
        return " ".join(self.texts)


def read_setting(key: str) -> Value | None:
    """Return the value of the setting ``key``, None if it is not set.

    Raises:
        InvalidInputError: A configuration file is unreadable or invalid.
    """
    variable = KEYS[key].variable
    if variable and (text := os.environ.get(variable)):
        return Value((text,), variable)
    for path, is_project in find_files():
        value = _read_file(path, is_project=is_project).get(key)
        if value is not None:
            return value
    return None


def find_files() -> Iterator[tuple[Path, bool]]:
    """Yield the configuration files that exist, the first with precedence, and whether each is the project file."""
    try:
        folder = Path.cwd()
    except OSError:  # the folder was removed
        folder = Path("/")
    paths = ((above / PROJECT_FILE, True) for above in (folder, *folder.parents))
    yield from [found for found in paths if os.path.isfile(found[0])][:1]  # noqa: PTH113 - Path raises for unreadable folders
    user = user_file()
    if os.path.isfile(user):  # noqa: PTH113 - as above
        yield user, False


def user_file() -> Path:
    """Return the path of the user's configuration file, which need not exist."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or _home() / ".config") / "benchlock" / "config.toml"


def _home() -> Path:
    """Return the user's home; the root folder, as in a container, for a user id without one."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def locate_registry() -> str:
    """Return the folder or URL of the registry from the environment, a configuration file or the default.

    Raises:
        InvalidInputError: A configuration file is unreadable or invalid.
        RefusedError: A project file selects a registry that the user does not trust.
    """
    value = read_setting("registry")
    if value is None:
        return str(Path(os.environ.get("XDG_DATA_HOME") or _home() / ".local" / "share") / "benchlock")
    if value.project is not None:
        trusted = read_setting("trusted_registries")
        if trusted is None or not any(_contains(entry, value.text) for entry in trusted.texts):
            raise RefusedError(
                f"the project file selects the registry {value.text[:200]}, which is not trusted",
                where=str(value.project),
                next_step=f"add it to trusted_registries in {user_file()}, or select a registry with --registry",
            )
    return value.text


def find_misspelt_variables(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each unknown variable that resembles a known one, and the known one."""
    known = {variable.removeprefix(_PREFIX): variable for variable in VARIABLES}
    for name in names:
        if name.startswith(_PREFIX) and name not in VARIABLES:
            word = name.removeprefix(_PREFIX)[:60]
            yield from ((name, known[near]) for near in get_close_matches(word, known, n=1, cutoff=_LIKENESS))


def _contains(entry: str, registry: str) -> bool:
    """Check whether the entry of ``trusted_registries`` is the registry, or a folder or server that contains it.

    URLs are compared as texts, so that no two parsers can disagree about the host.
    """
    if "://" in registry or "://" in entry:
        return registry == entry or registry.startswith(entry.rstrip("/") + "/")
    return Path(registry).resolve().is_relative_to(Path(entry).resolve())


def _read_file(path: Path, *, is_project: bool) -> dict[str, Value]:
    """Read the values of a configuration file by key.

    Raises:
        InvalidInputError: The file is unreadable or too large, or has an unknown key or an invalid value.
    """
    from benchlock.registry.text.toml import loads  # noqa: PLC0415 - most commands find no file

    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise InvalidInputError(
                f"the configuration file has more than {MAX_FILE_BYTES} bytes", where=str(path), next_step="shorten it"
            )
        text = content.decode()
        document = loads(text, _MAX_VALUES)
    except OSError as error:
        raise InvalidInputError(
            f"cannot read the configuration file: {error.strerror}", where=str(path), next_step="check its permissions"
        ) from error
    except ValueError as error:
        raise InvalidInputError(
            f"invalid TOML in the configuration file: {error}", where=str(path), next_step="correct it"
        ) from error
    values = {}
    for key, value in document.items():
        line = re.search(rf"^[ \t\[]*[\"']?{re.escape(key)}\b", text, re.MULTILINE)
        where = f"{path}, line {text.count(chr(10), 0, line.start()) + 1}" if line else str(path)
        _check_key(key, where, is_project=is_project)
        texts = _read_texts(KEYS[key], value, where, path.parent)
        if any(texts):
            values[key] = Value(texts, f"{key} in {path}", path if is_project else None)
    return values


def _check_key(key: str, where: str, *, is_project: bool) -> None:
    """Raise unless a file may set ``key``."""
    if key == "token":
        raise InvalidInputError(
            "a configuration file must not contain a token",
            where=where,
            next_step=f"save the token to a file that only you can read, and set token_file to it in {user_file()}",
        )
    if key not in KEYS:
        near = get_close_matches(key[:60], KEYS, n=1)
        step = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(KEYS)}"
        raise InvalidInputError(f"unknown key {key[:60]!r} in the configuration file", where=where, next_step=step)
    if is_project and not KEYS[key].in_project:
        raise InvalidInputError(
            f"a project file cannot set {key!r}", where=where, next_step=f"move it to {user_file()}"
        )


def _read_texts(setting: Setting, value: Any, where: str, folder: Path) -> tuple[str, ...]:  # noqa: ANN401 - a TOML value
    """Convert a TOML value to texts; paths in it become absolute, relative to the ``folder`` of the file."""
    is_list = setting.type.startswith("list")
    parts = value if isinstance(value, list) and is_list else [value]
    if setting.type.startswith("number"):
        parts = [str(part) for part in parts if isinstance(part, int | float) and not isinstance(part, bool)]
    texts = [part for part in parts if isinstance(part, str) and "\0" not in part]
    if isinstance(value, list) != is_list or len(texts) != len(value if is_list else [value]):
        raise InvalidInputError(
            f"invalid value of {setting.key!r}", where=where, next_step=f"write {setting.key} = {setting.example}"
        )
    if any(map(_PASSWORD.search, texts)):
        raise InvalidInputError(
            f"a configuration file must not contain a password, as {setting.key!r} does",
            where=where,
            next_step=f"leave it out, or set {setting.variable} instead",
        )
    if setting.type == "path" or "folder" in setting.type:
        expand = os.path.expanduser  # Path.expanduser raises for an unknown user
        texts = [text if not text or "://" in text else str(folder / expand(text)) for text in texts]
    return tuple(texts)
