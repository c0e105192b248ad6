"""Where the bytes of a manifest come from before they are blobs: this machine, a server, the Hugging Face Hub, DVC.

A source is not trusted: whoever reads from a remote one states the digest that the bytes must have.
"""

from artifacts.sources.dvc import DvcSource
from artifacts.sources.https import HttpsSource
from artifacts.sources.hub import Hub, HubSource
from artifacts.sources.local import FileSource, FolderSource
from artifacts.sources.network import LARGEST, Network
from artifacts.sources.opening import Access, RemoteSource, Source, open_source
from artifacts.sources.taking import fetch_file, fetch_tree, settled

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
