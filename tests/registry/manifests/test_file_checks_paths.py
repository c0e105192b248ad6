"""Paths of a manifest: which of them lie inside others, found in linear time."""

from hypothesis import given
from hypothesis import strategies as st

from benchlock.registry.manifests.file_checks import find_nested_paths

PATHS = st.lists(st.lists(st.sampled_from(["a", "b", "a-", "a0"]), min_size=1, max_size=4).map("/".join), max_size=8)


def inside_naively(paths: list[str]) -> set[tuple[int, int]]:
    found = set()
    for index, path in enumerate(paths):
        around = [other for other in paths if path.startswith(f"{other}/")]
        if around:
            found.add((index, paths.index(min(around, key=len))))
    return found


@given(PATHS)
def test_what_lies_inside_another_path(paths: list[str]) -> None:
    trees = [f"{path}/" if index % 2 else path for index, path in enumerate(paths)]
    assert set(find_nested_paths(trees)) == inside_naively(paths)
