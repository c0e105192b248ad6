"""A folder in front of a repository, which can be told the names of what is published."""

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.mirrored import MirroredStore
from benchlock.artifacts.oci.documents import OciIndex, OciManifest
from benchlock.artifacts.oci.store import OciStore


class MirroredRepository(MirroredStore[OciStore]):
    """As ``MirroredStore``, and also naming."""

    def name_manifest(self, tag: str, document: OciManifest | OciIndex, config: bytes | None = None) -> Digest:
        return self._remote.name_manifest(tag, document, config)
