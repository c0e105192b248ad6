"""Where the files of a model come from: a graph, weights, labels, each by URL and at best an MD5."""

import re
from dataclasses import dataclass
from posixpath import basename

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.trees import check_path
from benchlock.registry.importing.findings import Code, Notes, shown
from benchlock.registry.importing.original import Original
from benchlock.registry.importing.outline import Lines, block, element, entry

_MD5 = re.compile(r"[0-9a-fA-F]{32}")
_SHA256 = re.compile(r"(?:sha256:)?[0-9a-fA-F]{64}")
_QUERY = re.compile(r"[?#].*")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")


@dataclass(slots=True)
class Files:
    """The native list of files, as it grows; ``paths`` are in use."""

    notes: Notes
    lines: Lines
    paths: set[str]

    def add(self, role: str, keys: tuple[str, str], url: str, checksum: str | None, *, archive: str = "") -> str | None:
        """A file at ``url``, or inside the ``archive``; its path in the artifact, None where it is left open.

        ``keys`` are the paths of the URL and of the checksum in the original.
        """
        path = self._path(url, inside=bool(archive))
        lines = (
            entry("path", path) if path else [self._todo(keys[0], "path", "path", url, "gives no path", "write one")]
        )
        source = self._source(keys[0], url, archive)
        remote = not source[0].startswith("#")
        lines += [*entry("role", role), *source, *self._digest(keys[1], checksum, remote=remote)]
        self.lines += element(lines)
        return path

    def _path(self, url: str, *, inside: bool) -> str | None:
        try:
            path = url.strip().removeprefix("./") if inside else basename(_QUERY.sub("", url))
            check_path(path)
        except InvalidInputError:
            return None
        if any(path == used or path.startswith(f"{used}/") or used.startswith(f"{path}/") for used in self.paths):
            return None
        self.paths.add(path)
        return path

    def _source(self, key: str, url: str, archive: str) -> Lines:
        if archive:
            what = f"{shown(url)} lies in the archive {shown(archive)}, and no source reads archives"
            return [self.notes.todo(key, "archive", "source", what, "unpack it, and name the file")]
        if not _URL.fullmatch(url):
            return [self._todo(key, "no-url", "source", url, "is no URL", "write where the file comes from")]
        if url.startswith("https://"):
            return entry("source", url)
        if url.startswith("http://"):
            ask = "write the https: form if its server has one, or download the file and name it"
            return [self._todo(key, "http", "source", url, "is not encrypted", ask)]
        return [self._todo(key, "scheme", "source", url, "is no https: URL", "download the file and name it")]

    def _todo(self, key: str, code: Code, subject: str, url: str, what: str, ask: str) -> str:
        return self.notes.todo(key, code, subject, f"{shown(url)} {what}", ask)

    def _digest(self, key: str, checksum: str | None, *, remote: bool) -> Lines:
        """A remote source needs a SHA-256; of a local file it is computed, and what the original has is a hint."""
        md5 = checksum and _MD5.fullmatch(checksum)
        code: Code = "no-digest"
        what = "the original has no digest"
        if checksum:
            code = "md5" if md5 else "digest"
            other = "the SHA-256" if _SHA256.fullmatch(checksum) else "what is neither an MD5 nor a SHA-256:"
            form = f"the MD5 {checksum}" if md5 else f"{other} {shown(checksum)}"
            what = f"the original has {form}: a hint, and no identity"
        if remote:
            return [self.notes.todo(key, code, "sha256", what, "write the SHA-256 of the bytes that you verified")]
        self.notes.tell(key, code, what, "kept as a comment")
        return [f"# {what}"]


def model_files(top: Original, files: Files) -> str:
    """Put graph and weights into ``files``; the name of the graph's file, empty if there is none."""
    model = top.mapping("model")
    if model is None:
        what = "the original names no files"
        files.lines.append(top.notes.todo(top.path("model"), "no-model", "files", what, "list the graph and the rest"))
        return ""
    base, archived = model.text("base_url") or "", model.boolean("is_archive") or False
    graph = model.text("graph_path") or ""
    for role in ("graph", "weights"):
        _model_file(model, files, role, base, archived=archived)
    if not model.says("graph_path"):
        ask = "give one file the role graph"
        what = "the original names no graph"
        files.lines.append(model.notes.todo(model.path("graph_path"), "no-graph", "files", what, ask))
    return graph


def _model_file(model: Original, files: Files, role: str, base: str, *, archived: bool) -> None:
    path = model.text(f"{role}_path")
    key = f"{role}_checksum"
    if role == "graph" and not model.says(key) and model.says("checksum"):
        key = "checksum"
    if not path:
        if role == "graph" and base:
            what = f"{shown(base)} is the base of no file: graph_path is empty"
            model.notes.tell(model.path("base_url"), "base-url", what, "left out")
        if model.says(key):
            what = f"{shown(model.use(key))} is the checksum of a file that is not named"
            model.notes.tell(model.path(key), "checksum", what, "left out")
        return
    url = path
    if _URL.fullmatch(path):
        if base:
            what = f"{shown(path)} is a URL of its own, so nothing says what the base {shown(base)} is for"
            model.notes.tell(model.path("base_url"), "base-url", what, "the base is left out")
    elif base and not archived:
        url = f"{base.rstrip('/')}/{path.lstrip('/')}"
    keys = (model.path(f"{role}_path"), model.path(key))
    files.add(role, keys, url, model.text(key), archive=(base or "that is not named") if archived else "")


def files_lines(files: Files) -> Lines:
    return block("files", files.lines)
