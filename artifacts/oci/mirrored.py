"""A folder in front of a repository, which can be told the names of what is published."""

from artifacts.digest import Digest
from artifacts.mirrored import MirroredStore
from artifacts.oci.documents import OciIndex, OciManifest
from artifacts.oci.store import OciStore


class MirroredRepository(MirroredStore[OciStore]):
    """As ``MirroredStore``, and also naming."""

    def name_manifest(self, tag: str, document: OciManifest | OciIndex, config: bytes | None = None) -> Digest:
        return self._remote.name_manifest(tag, document, config)
