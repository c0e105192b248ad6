"""Where the bytes of a manifest come from before they are blobs: this machine, a server, the Hugging Face Hub, DVC.

A source is not trusted: whoever reads from a remote one states the digest that the bytes must have.
"""

from benchlock.artifacts.sources.dvc import DvcSource
from benchlock.artifacts.sources.https import HttpsSource
from benchlock.artifacts.sources.hub import Hub, HubSource
from benchlock.artifacts.sources.local import FileSource, FolderSource
from benchlock.artifacts.sources.network import LARGEST, Network
from benchlock.artifacts.sources.opening import Access, RemoteSource, Source, open_source
from benchlock.artifacts.sources.taking import fetch_file, fetch_tree, settled

__all__ = [
    "LARGEST",
    "Access",
    "DvcSource",
    "FileSource",
    "FolderSource",
    "HttpsSource",
    "Hub",
    "HubSource",
    "Network",
    "RemoteSource",
    "Source",
    "fetch_file",
    "fetch_tree",
    "open_source",
    "settled",
]
