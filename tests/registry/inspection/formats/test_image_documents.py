"""The lock of an image's wheels, held against the image's files."""

import hashlib

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.inspection.formats.image_documents import read_wheels
from benchlock.registry.lock.lock_assembly import find_wheel_files
from benchlock.registry.lock.lockfile import LockedFile

DIGEST = hashlib.sha256(b"wheel").hexdigest()
HEAD = 'lock-version = "1.0"\ncreated-by = "x"\n'
FILES = {
    path: LockedFile(path=path, sha256=DIGEST, size=5)
    for path in ("env/wheels/a-1-py3-none-any.whl", "env/b-1-py3-none-any.whl")
}


def package(name: str, *wheels: str) -> str:
    listed = ", ".join(wheels)
    return f'[[packages]]\nname = "{name}"\nversion = "1"\n' + (f"wheels = [{listed}]\n" if wheels else "")


def wheel(path: str, digest: str = DIGEST) -> str:
    return f'{{path = "{path}", hashes = {{sha256 = "{digest}"}}}}'


def test_wheels_are_found_from_the_folder_of_the_lock_in_the_order_of_their_paths() -> None:
    text = HEAD + package("a", wheel("./wheels/a-1-py3-none-any.whl")) + package("b", wheel("b-1-py3-none-any.whl"))
    assert [
        file.path for file in find_wheel_files(read_wheels(text.encode(), "env/pylock.toml"), "env/pylock.toml", FILES)
    ] == [
        "env/b-1-py3-none-any.whl",
        "env/wheels/a-1-py3-none-any.whl",
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            package("missing", wheel("wheels/missing-1-py3-none-any.whl")),
            "lists 'env/wheels/missing-1-py3-none-any.whl', which is not in the image's files",
        ),
        (
            package("a", wheel("../wheels/a-1-py3-none-any.whl")),
            "lists 'wheels/a-1-py3-none-any.whl', which is not in the image's files",
        ),
        (
            package("b", wheel("b-1-py3-none-any.whl", "0" * 64)),
            "disagree about the digest of env/b-1-py3-none-any.whl",
        ),
        (package("a") + 'directory = {path = "a"}\n', "lists a without a wheel"),
        (
            package("a", f'{{url = "https://x.org/a-1-py3-none-any.whl", hashes = {{sha256 = "{DIGEST}"}}}}'),
            "lists a wheel of a by URL",
        ),
        ("[[packages]]\nname = 1\n", "is not a valid wheels lock"),
        ("\x00", "is not a valid wheels lock"),
    ],
)
def test_what_the_image_does_not_have_is_refused_with_its_name(body: str, reason: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        find_wheel_files(read_wheels((HEAD + body).encode(), "env/pylock.toml"), "env/pylock.toml", FILES)
    assert reason in caught.value.what
    assert caught.value.where == "env/pylock.toml"
