"""``python -m benchmarks.simulation [NAME...]``: print the tables of docs/explanation/comparing.md; takes minutes."""

import sys

from benchmarks.simulation import decisions, quality, within_runs

TABLES = {"within-runs": within_runs.tables, "decisions": decisions.tables, "quality": quality.tables}


def main(names: list[str]) -> None:
    """Print the tables of the names, or all of them."""
    if unknown := [name for name in names if name not in TABLES]:
        sys.exit(f"unknown table {unknown[0]!r}; the tables are {', '.join(TABLES)}")
    for name in names or TABLES:
        for text in TABLES[name]():
            print(f"{text}\n", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
