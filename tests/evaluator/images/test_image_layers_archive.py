import io
import json
import tarfile

import pytest

from benchlock.artifacts.blob_store import BlobNotFoundError
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, to_hex
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.images.image_layers import docker_archive, encode_config


def test_an_archive_holds_the_config_and_the_layers_by_digest(store: LocalStore) -> None:
    contents = [b"", b"layer" * 1000, bytes(1024)]
    layers = [store.put(io.BytesIO(content)) for content in contents]
    config = encode_config("amd64", [layer.digest for layer in layers])
    written = io.BytesIO()
    written.writelines(docker_archive(config, layers, store))
    written.seek(0)
    with tarfile.open(fileobj=written, mode="r:") as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive}
        read = {name: stream.read() for name, stream in files.items() if stream}
    (image,) = json.loads(read["manifest.json"])
    assert image["Config"] == f"{to_hex(digest_bytes(config))}.json"
    assert read[image["Config"]] == config
    assert [read[path] for path in image["Layers"]] == contents


def test_a_layer_that_the_store_has_not_is_named(store: LocalStore) -> None:
    missing = Descriptor(Digest(f"sha256:{'0' * 64}"), 5)
    with pytest.raises(BlobNotFoundError):
        list(docker_archive(b"{}", [missing], store))


def test_a_config_says_nothing_of_time_or_host() -> None:
    config = json.loads(encode_config("arm64", [Digest(f"sha256:{'1' * 64}")]))
    assert set(config) == {"architecture", "os", "config", "rootfs"}
    assert config["rootfs"] == {"type": "layers", "diff_ids": [f"sha256:{'1' * 64}"]}
    assert "PYTHONPATH=/opt/benchlock/site-packages" in config["config"]["Env"]
