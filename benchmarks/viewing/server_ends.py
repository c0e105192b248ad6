"""Why a server does not answer any more: its exit code and the end of its log, which are gone with its folder."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from playwright.sync_api import Error as BrowserError

from benchmarks.answering.servers import Answering


@contextmanager
def explain_end(server: Answering) -> Iterator[None]:
    """Tell how ``server`` ended, if it did, when a request within the context gets no answer.

    Raises:
        SystemExit: A request failed after the server ended.
    """
    try:
        yield
    except (httpx.TransportError, BrowserError) as error:
        end = server.describe_end()
        if end:
            raise SystemExit(f"{server.title} ended during the measurement: {end}") from error
        raise
