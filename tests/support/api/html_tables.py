"""The tables of a page as its readers see them."""

import re
from html import unescape


def read_cells(page: str, name: str) -> list[list[str]]:
    """The texts of the cells of the table that a page offers as the CSV file ``name``."""
    body = page.partition(f'csv={name}">CSV</a>')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    body = re.sub(r"<summary>.*?</summary>", "", body)  # the beginning of a digest, which opens to all of it
    body = re.sub(r"<td><input[^>]*></td>", "", body)
    rows = (re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", body, re.DOTALL))
    return [[unescape(re.sub(r"<[^>]+>", "", cell)) for cell in cells] for cells in rows]
