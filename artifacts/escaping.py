"""Text that somebody else wrote, on one line of a terminal or of a log: shown, never obeyed.

Everything that is not printable is escaped visibly: controls, DEL, newlines and separators of lines, marks that turn
the direction of text, lone surrogates. A text can then neither forge a line nor hide a part of one.
"""


def escape_line(text: str) -> str:
    r"""Return the text on one line, with an escape such as ``\n`` for each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def escape_json(text: str) -> str:
    r"""Return JSON text as the same document, with ``\u`` escapes for what is not printable but newlines.

    JSON has newlines between its values alone: inside of its strings they are escaped already.
    """
    return "\n".join(line if line.isprintable() else _escape_units(line) for line in text.split("\n"))


def _escape_units(line: str) -> str:
    return "".join(one if one.isprintable() else "".join(map(_unit, _units(one))) for one in line)


def _units(character: str) -> tuple[int, ...]:
    content = character.encode("utf-16-be", "surrogatepass")
    return tuple(int.from_bytes(content[start : start + 2], "big") for start in range(0, len(content), 2))


def _unit(code: int) -> str:
    return f"\\u{code:04x}"
