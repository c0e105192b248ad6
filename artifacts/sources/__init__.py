"""Sources of the files of a manifest: local paths, HTTPS, the Hugging Face Hub and DVC repositories.

Sources are not trusted: a caller that reads from a remote source states the digest that the bytes must have.
"""

from benchlock.artifacts.net.network_policy import LARGEST_DOWNLOAD, NetworkPolicy
from benchlock.artifacts.sources.dvc_source import DvcSource
from benchlock.artifacts.sources.file_source import FileSource, FolderSource
from benchlock.artifacts.sources.https_source import HttpsSource
from benchlock.artifacts.sources.hub_source import Hub, HubFile, HubSource, parse_hub_repository
from benchlock.artifacts.sources.source_loader import (
    RemoteSource,
    Source,
    SourceAccess,
    fetch_file,
    fetch_tree,
    open_source,
    pin_revision,
)

__all__ = [
    "LARGEST_DOWNLOAD",
    "DvcSource",
    "FileSource",
    "FolderSource",
    "HttpsSource",
    "Hub",
    "HubFile",
    "HubSource",
    "NetworkPolicy",
    "RemoteSource",
    "Source",
    "SourceAccess",
    "fetch_file",
    "fetch_tree",
    "open_source",
    "parse_hub_repository",
    "pin_revision",
]
