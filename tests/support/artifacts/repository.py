"""A DVC repository as an author makes it: git, DVC's own commands, and a folder as its remote."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DVC = Path(sys.executable).parent / "dvc"
CONFIG = "[core]\n    remote = storage\n['remote \"storage\"']\n    url = ../../remote\n"


@dataclass(frozen=True)
class DvcRepository:
    """A repository in ``folder/repo``, whose remote is ``folder/remote``."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "repo"

    def git(self, *words: str) -> str:
        return self._run("git", "-c", "user.name=an author", "-c", "user.email=author@example.com", *words)

    def dvc(self, *words: str) -> str:
        return self._run(str(DVC), *words)

    def commit(self, files: Mapping[str, bytes], git: Mapping[str, bytes] | None = None) -> None:
        """Commit files: ``files`` tracked by DVC, by their top folder where they are in one, the others by git."""
        if not self.path.exists():
            self.path.mkdir(parents=True)
            self.git("init", "-q", "-b", "main")
            self.dvc("init", "-q")
            (self.path / ".dvc" / "config").write_text(CONFIG)
        for name, content in {**files, **(git or {})}.items():
            place = self.path / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)
            place.write_bytes(content)
        self.dvc("add", "-q", *sorted({name.partition("/")[0] for name in files}))
        self.dvc("push", "-q")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "files")

    def forget(self) -> None:
        """Leave the files in the remote alone: neither in the working tree nor in the local cache."""
        shutil.rmtree(self.path / ".dvc" / "cache")
        for place in self.path.iterdir():
            if place.name not in {".git", ".dvc"} and place.suffix != ".dvc":
                shutil.rmtree(place) if place.is_dir() else place.unlink()

    def _run(self, *command: str) -> str:
        environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "DVC_NO_ANALYTICS": "1"}
        environment["DVC_SITE_CACHE_DIR"] = str(self.folder / "cache")
        done = subprocess.run(command, cwd=self.path, env=environment, check=True, capture_output=True, text=True)
        return done.stdout.strip()
