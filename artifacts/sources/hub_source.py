"""Sources on the Hugging Face Hub: ``hf://ORG/NAME@REVISION/PATH``, also for datasets and spaces.

The Hub's own client resolves branches and tags to commits, and returns the SHA-256 and the URL of a file. The bytes are
downloaded by this package, because the client would store them twice, cannot resume the download of a killed process,
and verifies no digest. The client's cache, token files and Xet protocol are not used.
"""

import functools
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Final, Literal
from urllib.parse import quote, unquote

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.file_trees import check_path
from benchlock.artifacts.net.http_session import Session
from benchlock.artifacts.net.network_policy import LARGEST_DOWNLOAD, NetworkPolicy, find_addresses, is_public
from benchlock.artifacts.net.urls import check_url, find_origin, redact_password, redact_url
from benchlock.artifacts.sources.https_source import SOURCE_ERROR_POLICY, open_download

Repository = Literal["model", "dataset", "space"]

HUB: Final = "https://huggingface.co"
_UNPROXIED: Final = ("http://", "https://localhost", "https://127.0.0.1", "https://[::1]")
"""URLs without a proxy, in the notation of the Hub's client: this machine, and so all unencrypted URLs."""
_SECONDS: Final = 20.0  # timeout of a response of a few lines
_MOST_FILES: Final = 20_000
_FOLDERS: Final[dict[str, Repository]] = {"datasets": "dataset", "spaces": "space"}
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_SOURCE: Final = re.compile(r"hf://(?:(datasets|spaces)/)?([\w.-]+/[\w.-]+)@([^/@]+)/(.+)", re.ASCII | re.DOTALL)

_REPOSITORY: Final = re.compile(r"hf:(?://)?([\w.-]+/[\w.-]+)(?:@([^/@]+))?(?:/([^@]+))?", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Hub:
    """A Hub and the token for it, which is sent to ``endpoint`` only.

    ``commits`` is a cache that resolves each revision once, so that all files of a publication have the same commit.
    """

    endpoint: str = HUB
    token: str | None = field(default=None, repr=False)
    commits: dict[tuple[str, str, str], str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository: its path, its size in bytes, and the SHA-256 of a file in LFS, as the Hub states them."""

    path: str
    size: int | None
    sha256: str | None


def _read_file(file: Any) -> HubFile:  # noqa: ANN401 - of a heavy library
    """Read a file in the Hub's description of a repository."""
    sha256 = file.lfs.sha256 if file.lfs else None
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise ValueError("a file has an invalid digest")
    return HubFile(file.rfilename, file.size, sha256)


@dataclass(frozen=True, slots=True)
class HubSource:
    """A file of a repository at a revision: a commit, or a branch or tag, which ``resolve`` replaces by its commit."""

    kind: Repository
    name: str
    revision: str
    path: str
    hub: Hub = field(default_factory=Hub)
    network: NetworkPolicy = field(default_factory=NetworkPolicy)

    def __str__(self) -> str:
        """Return the source as written in a manifest."""
        prefix = "" if self.kind == "model" else f"{self.kind}s/"
        return f"hf://{prefix}{self.name}@{quote(self.revision, safe='')}/{self.path}"

    def resolve(self) -> "HubSource":
        """Return the same file at the current commit of its revision.

        Raises:
            InvalidInputError: The repository or revision does not exist or is not accessible.
            UnavailableError: The Hub does not answer.
        """
        if _COMMIT.fullmatch(self.revision):
            return self
        key = self.kind, self.name, self.revision
        if key not in self.hub.commits:
            self.hub.commits[key] = self._read_commit()
        return replace(self, revision=self.hub.commits[key])

    def find_digest(self) -> Digest | None:
        """Return the digest that the Hub states for a file in LFS, otherwise ``None``; errors as ``resolve``."""
        import huggingface_hub  # noqa: PLC0415 - heavy; only sources on the Hub need it

        with _convert_failures(self):
            metadata = huggingface_hub.get_hf_file_metadata(
                self._url(), token=self.hub.token or False, timeout=_SECONDS, endpoint=self.hub.endpoint
            )
        return Digest(f"sha256:{metadata.etag}") if metadata.etag and _SHA256.fullmatch(metadata.etag) else None

    def open(self, offset: int = 0, *, limit: int = LARGEST_DOWNLOAD) -> AbstractContextManager[BinaryIO]:
        """Open the file from ``offset`` on, streamed; errors as ``HttpsSource.open``."""
        authorization, url = f"Bearer {self.hub.token}" if self.hub.token else None, self._url()
        session = Session(url, str(self), SOURCE_ERROR_POLICY, self._make_policy(), authorization=authorization)
        return open_download(session, url, offset, limit)

    def list_files(self) -> tuple[str, tuple[HubFile, ...]]:
        """Return the commit of the revision, and all files of the repository at that commit, whatever the path.

        Raises:
            InvalidInputError: The repository or revision does not exist or is not accessible, or has too many files.
            UnavailableError: The Hub does not answer.
        """
        information = self._read_information(files_metadata=True)
        with _convert_failures(self):
            files = tuple(_read_file(file) for file in information.siblings or ())
        if len(files) > _MOST_FILES:
            what = f"the {self.kind} {self.name} has more than {_MOST_FILES} files"
            raise InvalidInputError(what, where=str(self), next_step="download the files that are needed")
        return self._parse_commit(information.sha), files

    def _read_commit(self) -> str:
        return self._parse_commit(self._read_information().sha)

    def _read_information(self, *, files_metadata: bool = False) -> Any:  # noqa: ANN401 - of a heavy library
        import huggingface_hub  # noqa: PLC0415 - heavy; only sources on the Hub need it

        api = huggingface_hub.HfApi(endpoint=self.hub.endpoint, token=self.hub.token or False)
        with _convert_failures(self):
            return api.repo_info(
                self.name, repo_type=self.kind, revision=self.revision, timeout=_SECONDS, files_metadata=files_metadata
            )

    def _parse_commit(self, commit: str | None) -> str:
        if commit is None or not _COMMIT.fullmatch(commit):
            raise UnavailableError(
                f"the Hub returned no commit for {self}", where=str(self), next_step="write the commit"
            )
        return commit

    def _url(self) -> str:
        import huggingface_hub  # noqa: PLC0415 - heavy; only sources on the Hub need it

        return huggingface_hub.hf_hub_url(
            self.name, self.path, repo_type=self.kind, revision=self.revision, endpoint=self.hub.endpoint
        )

    def _make_policy(self) -> NetworkPolicy:
        """Return the network policy; a Hub on a private network may redirect within it, the public one may not."""
        split = check_url(self.hub.endpoint, loopback_http=True)
        try:
            ip_addresses = find_addresses(split.hostname or "", split.port or 0)
        except OSError:  # reached through a proxy, or not at all
            ip_addresses = []
        is_private = not all(is_public(address) for address in ip_addresses)
        return replace(self.network, loopback_http=split.scheme == "http", private_redirects=is_private)


def parse_hub_source(source: str, hub: Hub, network: NetworkPolicy) -> HubSource:
    """Parse an ``hf:`` source; a ``/`` in a branch or tag is written ``%2F``.

    Raises:
        InvalidInputError: The text is not a file on the Hub.
    """
    match = _SOURCE.fullmatch(source)
    if not match:
        shown = redact_password(source)
        raise InvalidInputError(
            f"{shown} is not a file on the Hub",
            where=shown,
            next_step="write hf://ORG/NAME@REVISION/PATH (hf://datasets/ORG/NAME@… for a dataset), the revision a "
            "commit, or a branch or tag with %2F for each slash in it",
        )
    folder, name, revision, path = match.groups()
    kind = _FOLDERS[folder] if folder else "model"
    return HubSource(kind, name, unquote(revision), check_path(path), hub, network)


def parse_hub_repository(source: str, hub: Hub, network: NetworkPolicy) -> HubSource:
    """Parse ``hf:ORG/NAME[@REVISION][/PATH]``, a model repository or one of its files; the default revision is main.

    Raises:
        InvalidInputError: The text has another form.
    """
    match = _REPOSITORY.fullmatch(source)
    if not match or match[1].partition("/")[0] in _FOLDERS:
        shown = redact_password(source)
        raise InvalidInputError(
            f"{shown} is not a model on the Hub",
            where=shown,
            next_step="write hf:ORG/NAME@REVISION, or hf:ORG/NAME@REVISION/PATH for one of several model files",
        )
    path = check_path(match[3]) if match[3] else ""
    return HubSource("model", match[1], unquote(match[2] or "main"), path, hub, network)


_current_source: ContextVar[HubSource] = ContextVar("_asked")
"""The source of the current request: the whole process shares one client of the Hub."""


@functools.cache
def _reject_redirects() -> None:
    """Make the Hub's client reject redirects to other hosts, which it would follow."""
    import httpx2  # noqa: PLC0415 - loaded by the client
    import huggingface_hub  # noqa: PLC0415 - heavy; only sources on the Hub need it

    def stay(request: httpx2.Request) -> None:
        if huggingface_hub.is_offline_mode():
            raise OSError("HF_HUB_OFFLINE is set")
        source = _current_source.get()
        if find_origin(str(request.url)) != find_origin(source.hub.endpoint):
            raise InvalidInputError(
                f"the Hub redirects to another host: {redact_url(str(request.url))}",
                where=str(source),
                next_step="if you trust it, set HF_ENDPOINT to it",
            )

    hooks = {"request": [stay]}
    huggingface_hub.set_client_factory(
        lambda: httpx2.Client(event_hooks=hooks, follow_redirects=True, timeout=None, mounts=dict.fromkeys(_UNPROXIED))
    )


@contextmanager
def _convert_failures(source: HubSource) -> Iterator[None]:
    """Convert errors of the Hub's client into errors that name the source."""
    import httpx2  # noqa: PLC0415 - loaded by the client
    from huggingface_hub import errors  # noqa: PLC0415

    check_url(source.hub.endpoint, loopback_http=True)
    name, shown = f"{source.kind} {source.name}", str(source)
    _reject_redirects()
    token = _current_source.set(source)
    try:
        yield
    except errors.RevisionNotFoundError as error:
        raise InvalidInputError(
            f"the {name} has no revision {source.revision}", where=shown, next_step="check the repository's commits"
        ) from error
    except errors.EntryNotFoundError as error:
        raise InvalidInputError(
            f"the {name} has no file {source.path} at {source.revision}",
            where=shown,
            next_step="check the repository's files at that revision",
        ) from error
    except (errors.RepositoryNotFoundError, errors.DisabledRepoError) as error:
        raise InvalidInputError(
            f"the Hub has no accessible {name}",
            where=shown,
            next_step="correct the name; for a private or gated repository, set HF_TOKEN to a token that may read it",
        ) from error
    except errors.HFValidationError as error:
        raise InvalidInputError(f"{shown}: {error}", where=shown, next_step="correct the name") from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        raise _make_error(source, f"it answers {status} {error.response.reason_phrase}".rstrip()) from error
    except (httpx2.HTTPError, OSError) as error:
        raise _make_error(source, str(error) or type(error).__name__) from error
    except (ValueError, TypeError, KeyError) as error:
        raise _make_error(source, "its response is not that of a Hub") from error
    finally:
        _current_source.reset(token)


def _make_error(source: HubSource, reason: str) -> UnavailableError:
    return UnavailableError(
        f"no answer from the Hub about {source}: {reason}",
        where=redact_url(source.hub.endpoint),
        next_step="check the network and HF_ENDPOINT, and try again",
    )
