"""A universe as Python packages, for uv: a package index on the loopback interface, and the command that asks it.

Every name is a package ``KIND-NAME`` and every version a wheel of which there is only metadata (PEP 691 and PEP 658): a
model requires its framework, a framework its image, an image one version of its framework. The processor of an image is
its wheel's platform tag. Whether any of several images will do cannot be said that way, so crowded universes are not.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from benchlock.registry.artifact_names import Kind
from benchmarks.resolving.universes import ANY, NAMES, PLATFORMS, Ask, Release, Universe, version

UV = Path(sys.executable).parent / "uv"
_TAGS = {("amd64",): "manylinux_2_17_x86_64", (): "any", PLATFORMS: "any"}
_TARGETS = {"amd64": "x86_64-manylinux_2_28", "arm64": "aarch64-manylinux_2_28"}


@contextmanager
def served(universe: Universe) -> Iterator[str]:
    """The address of an index of the universe, for as long as the context is held."""
    server = _Server(("127.0.0.1", 0), _answering(Index(universe)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def command(ask: Ask, address: str, folder: Path) -> list[str]:
    """``uv pip compile`` of the request, with a cache of its own below ``folder``, where its input is written."""
    path = folder / f"{ask.title.replace(' ', '-')}.in"
    path.write_text("".join(f"{line}\n" for line in requirements(ask)), encoding="utf-8")
    options = {
        "--default-index": address,
        "--cache-dir": str(folder / "cache"),
        "--only-binary": ":all:",
        "--python": sys.executable,
        "--python-platform": _TARGETS[ask.arch],
    }
    words = [word for option in options.items() for word in option]
    return [str(UV), "pip", "compile", "--no-config", "--no-header", "--no-annotate", "--quiet", *words, str(path)]


def requirements(ask: Ask) -> list[str]:
    """What the request asks, as requirements of packages."""
    lines = [f"model-{ask.model}{ask.versions}", f"dataset-{ask.dataset}"]
    if ask.framework is not None:
        lines.append(f"framework-{ask.needs}{ask.framework}")
    if ask.image is not None:
        lines.append(f"image-{ask.image[0]}{ask.image[1]}")
    return lines


class Index:
    """The pages of the index, each made when it is first asked for."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._packages = {f"{kind}-{name}": (kind, name) for kind in NAMES for name in universe.names(kind)}
        self.page = cache(self._page)

    def _page(self, path: str) -> tuple[str, bytes] | None:
        """Content type and body; ``None`` of what there is not."""
        match path.strip("/").split("/"):
            case ["simple", package] if package in self._packages:
                return "application/vnd.pypi.simple.v1+json", self._versions(package)
            case ["files", package, number, _]:
                return "text/plain", self._metadata(*self._packages[package], int(number))
            case _:
                return None

    def _versions(self, package: str) -> bytes:
        files = [
            {
                "filename": f"{package.replace('-', '_')}-{version(one.number)}-py3-none-{_TAGS[one.arches]}.whl",
                "url": f"/files/{package}/{one.number}/wheel",
                "hashes": {},
                "core-metadata": True,
            }
            for one in self._universe.of(*self._packages[package])
        ]
        return json.dumps({"meta": {"api-version": "1.0"}, "name": package, "files": files}).encode()

    def _metadata(self, kind: Kind, name: str, number: int) -> bytes:
        lines = ["Metadata-Version: 2.1", f"Name: {kind}-{name}", f"Version: {version(number)}"]
        release = self._releases(kind, name)[number]
        if release.requires:
            lines.append(f"Requires-Dist: framework-{release.requires[0]}{release.requires[1]}")
        elif release.provides:
            lines.append(f"Requires-Dist: framework-{release.provides[0]}=={version(release.provides[1])}")
        elif kind == "framework":
            (image,) = self._universe.images_of(name)
            lines.append(f"Requires-Dist: image-{image}{ANY}")
        return "".join(f"{line}\n" for line in lines).encode()

    @cache  # noqa: B019 - the index lives as long as the measurement
    def _releases(self, kind: Kind, name: str) -> list[Release]:
        return self._universe.of(kind, name)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that ends closes the connections that it held: nothing to say."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def _answering(index: Index) -> type[BaseHTTPRequestHandler]:
    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = index.page(self.path)
            content_type, body = found or ("text/plain", b"")
            self.send_response(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "max-age=86400")  # so that a warm cache asks nothing again
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the library's interface
            pass

    return Answering
