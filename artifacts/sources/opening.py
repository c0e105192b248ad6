"""From the text of a source to what it names."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.sources.dvc import Commits, DvcSource, dvc_source
from benchlock.artifacts.sources.https import HttpsSource
from benchlock.artifacts.sources.hub import Hub, HubSource, hub_source
from benchlock.artifacts.sources.local import FileSource, FolderSource, file_url_path, local_source
from benchlock.artifacts.sources.network import Network
from benchlock.artifacts.urls import check_url, shown_url

RemoteSource = HttpsSource | HubSource | DvcSource
"""What is read elsewhere: whoever publishes it states the digest that its bytes must have."""

Source = FileSource | FolderSource | RemoteSource

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


@dataclass(frozen=True, slots=True)
class Access:
    """How remote sources are reached: the rules of connections, the Hub, and the commits of DVC repositories."""

    network: Network = field(default_factory=Network)
    hub: Hub = field(default_factory=Hub)
    commits: Commits = field(default_factory=dict, compare=False)


def open_source(source: str, base: Path, access: Access | None = None) -> Source:
    """What ``source`` names: a path (a relative one starts at ``base``), or a URL with one of the schemes.

    Raises:
        InvalidInputError: nothing is there, or it cannot be a source.
        UnavailableError: it cannot be looked at.
    """
    access = access or Access()
    scheme = _SCHEME.match(source)
    if not scheme:
        return local_source(base / source, source)
    name = scheme.group(1).lower()
    if name == "file":
        return local_source(file_url_path(source), source)
    if name in {"https", "http"}:
        check_url(source, loopback_http=access.network.loopback_http)
        return HttpsSource(source, access.network)
    if name == "hf":
        return hub_source(source, access.hub, access.network)
    if name == "dvc":
        return dvc_source(source, base, access.commits)
    shown = shown_url(source)
    raise InvalidInputError(
        f"{shown}: no source is called {name}:",
        where=shown,
        next_step=f"write a path (./{shown} if it is one), or file:, https:, hf: or dvc:",
    )
