"""What golden tensors found, as text for a person."""

from collections.abc import Iterator, Mapping

from benchlock.artifacts.plurals import count_of


def golden_summary(report: Mapping[str, object]) -> str:
    """How many samples were checked. A run in which one deviates has failed, and its failure says by how much."""
    return f"{count_of(report.get('samples'), 'sample')}, all within the tolerance"


def golden_lines(report: Mapping[str, object]) -> Iterator[str]:
    """Each input and output that was checked: by how much it differs at most, and by how much it may.

    What a record of others has in another form is left out.
    """
    for kind in ("input", "output"):
        ports = report.get(f"{kind}s")
        for name, found in ports.items() if isinstance(ports, dict) else ():
            if isinstance(found, dict) and isinstance(found.get("largest"), int | float):
                yield f"{kind} {name}: differs by {found['largest']:.6g} at most{_allowed(found)}"


def _allowed(found: Mapping[str, object]) -> str:
    """Nothing where it was not recorded, as by harnesses of earlier versions."""
    absolute, relative = found.get("absolute"), found.get("relative")
    if not isinstance(absolute, int | float) or not isinstance(relative, int | float):
        return ""
    return f" (tolerance {absolute:g} + {relative:g} * |expected|)"
