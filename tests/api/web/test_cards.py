"""Cards are foreign: whatever they contain, the page gets text, lists, tables and links, and nothing that acts."""

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlock.api.web.cards import render_card

TAGS = {
    *("h3", "h4", "h5", "h6", "p", "br", "hr", "blockquote", "pre", "code", "em", "strong", "s", "a"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"),
}
PIECES = (
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg onload=alert(1)>", "<a href='javascript:x'>"),
    *("[a](javascript:alert)", "[b](data:text/html,x)", "![c](https://example.org/x.png)", "[d](https://example.org)"),
    *(
        "[e](/sign-out)",
        "[f](//evil.example/a)",
        "[g](../../v1/docs)",
        "[h](#main)",
        "[i](?csv=x)",
        "[j](http:/sign-out)",
    ),
    *(
        "# head",
        "\n\n",
        "| a |\n| - |\n| b |\n",
        "> q",
        "- i",
        "`c`",
        "<style>*{}</style>",
        "<!--",
        "]]>",
        "&lt;",
        "\u202e",
    ),
)


class Seen(HTMLParser):
    """The tags of a text, and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs


@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=12).map("".join))
def test_nothing_that_acts_is_left(text: str) -> None:
    seen = Seen(render_card(text))
    assert seen.tags <= TAGS
    for name, value in seen.attributes:
        assert name in ("href", "rel"), name
        assert name != "href" or (value or "").startswith(("http://", "https://")), value


def test_links_are_marked_as_content_of_users() -> None:
    card = render_card("[d](https://example.org)")
    assert str(card) == '<p><a href="https://example.org" rel="nofollow ugc noopener noreferrer">d</a></p>\n'


@pytest.mark.parametrize(
    "link", ["/sign-out", "//evil.example/a", "../../v1/docs", "#main", "http:/sign-out", "https:a"]
)
def test_links_to_pages_of_the_service_are_text(link: str) -> None:
    html = str(render_card(f"[x]({link})"))
    assert "href" not in html
    assert ">x<" in html


@pytest.mark.parametrize(
    ("text", "html"), [("# a", "<h3>a</h3>\n"), ("###### a", "<h6>a</h6>\n"), ("---\nx: 1\n---\nb", "<p>b</p>\n")]
)
def test_headings_are_below_those_of_the_page_and_front_matter_is_left_out(text: str, html: str) -> None:
    assert str(render_card(text)) == html


def test_deep_nesting_is_no_error() -> None:
    assert "x" in render_card("> " * 5000 + "x" + "\n\nx")
