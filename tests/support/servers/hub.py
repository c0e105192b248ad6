"""A double of the Hugging Face Hub on this machine: its protocol as the Hub's own client speaks it.

A small file is answered by the Hub itself, after a redirect to its cache; one in LFS by a redirect to another server,
with its SHA-256 and size in the headers.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.support.servers.web import File, Handler, Web, serving

API = {"model": "/api/models/", "dataset": "/api/datasets/", "space": "/api/spaces/"}
PREFIX = {"model": "/", "dataset": "/datasets/", "space": "/spaces/"}
SIGNATURE = "?Signature=secret"


@dataclass
class Repo:
    """A repository: its branches and tags, and the files of each commit; those named in ``lfs`` are kept elsewhere."""

    kind: str = "model"
    name: str = "org/net"
    revisions: dict[str, str] = field(default_factory=dict)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    lfs: frozenset[str] = frozenset()
    token: str | None = None  # that alone may see it

    def commit(self, revision: str, **files: bytes) -> str:
        """Add a commit, which ``revision`` is from now on."""
        commit = hashlib.sha1(f"{len(self.commits)}".encode(), usedforsecurity=False).hexdigest()
        self.commits[commit] = {name.replace("__", "/").replace("_", "."): content for name, content in files.items()}
        self.revisions[revision] = commit
        return commit


@dataclass
class HubServer:
    """The Hub itself, and the server that its large files come from."""

    web: Web
    storage: Web
    repo: Repo = field(default_factory=Repo)

    def answer(self, handler: Handler) -> None:
        """What the Hub answers."""
        repo, path = self.repo, unquote(handler.path.partition("?")[0])
        if repo.token and handler.headers["Authorization"] != f"Bearer {repo.token}":
            return handler.reply(401, X_Error_Code="RepoNotFound", X_Error_Message="Invalid username or password.")
        revision_of = API[repo.kind] + repo.name + "/revision/"
        file_of = PREFIX[repo.kind] + repo.name + "/resolve/"
        cached = "/api/resolve-cache/" + repo.name + "/"
        if path.startswith(revision_of):
            return self._answer_revision(handler, path.removeprefix(revision_of))
        if path.startswith(file_of):
            return self._answer_file(handler, path.removeprefix(file_of), cached)
        if path.startswith(cached):
            return handler.answer_file(self._cached(path.removeprefix(cached)))
        return handler.reply(404, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")

    def _answer_revision(self, handler: Handler, revision: str) -> None:
        commit = self.repo.revisions.get(revision, revision)
        if commit not in self.repo.commits:
            return handler.reply(404, X_Error_Code="RevisionNotFound", X_Error_Message=f"Invalid rev id: {revision}")
        siblings = [self._file(path, content) for path, content in self.repo.commits[commit].items()]
        answer = {"_id": "0", "id": self.repo.name, "sha": commit, "siblings": siblings, "private": False, "tags": []}
        return handler.reply(200, json.dumps(answer).encode(), Content_Type="application/json")

    def _file(self, path: str, content: bytes) -> dict[str, Any]:
        """A file as the Hub lists it with ``blobs=true``."""
        listed: dict[str, Any] = {"rfilename": path, "size": len(content), "blobId": "0" * 40}
        if path in self.repo.lfs:
            listed["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
        return listed

    def _answer_file(self, handler: Handler, rest: str, cached: str) -> None:
        revision, path = next(
            (known, rest.removeprefix(f"{known}/"))
            for known in [*self.repo.revisions, *self.repo.commits, ""]
            if rest.startswith(f"{known}/") or not known
        )
        commit = self.repo.revisions.get(revision, revision)
        content = self.repo.commits.get(commit, {}).get(path)
        if content is None:
            code = "EntryNotFound" if commit in self.repo.commits else "RevisionNotFound"
            return handler.reply(404, X_Error_Code=code, X_Error_Message="not found")
        if path not in self.repo.lfs:
            git = hashlib.sha1(content, usedforsecurity=False).hexdigest()
            return handler.reply(307, Location=f"{cached}{commit}/{path}", X_Repo_Commit=commit, ETag=f'"{git}"')
        digest = hashlib.sha256(content).hexdigest()
        self.storage.pages.setdefault(f"/lfs/{digest}", File(content, etag='"of-the-storage"'))
        return handler.reply(
            302,
            Location=f"{self.storage.origin}/lfs/{digest}{SIGNATURE}",
            X_Repo_Commit=commit,
            X_Linked_Etag=f'"{digest}"',
            X_Linked_Size=str(len(content)),
        )

    def _cached(self, rest: str) -> File:
        commit, _, path = rest.partition("/")
        content = self.repo.commits[commit][path]
        git = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        return File(content, etag=f'"{git}"', headers={"X-Repo-Commit": commit})


@contextmanager
def serving_hub() -> Iterator[HubServer]:
    """A Hub with one repository, on this machine; its endpoint is ``hub.web.origin``."""
    with serving(tls=False) as web, serving(tls=False) as storage:
        hub = HubServer(web, storage)
        web.otherwise = hub.answer
        yield hub
