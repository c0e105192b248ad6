"""Model cards as HTML: Markdown without HTML of its own, and of what it makes only what is on a list."""

import re
from functools import cache
from typing import Final

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup

_TAGS: Final = {
    *("h3", "h4", "h5", "h6", "p", "br", "hr", "blockquote", "pre", "code", "em", "strong", "s", "a"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"),
}
_FRONT_MATTER: Final = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
_LINK: Final = {"a": {"href"}}
_NESTING: Final = 20


@cache
def _parser() -> MarkdownIt:
    options = {"html": False, "linkify": False, "maxNesting": _NESTING}
    return MarkdownIt("commonmark", options).enable("table").disable("image")


def _keep_attribute(_tag: str, name: str, value: str) -> str | None:
    """Drop links such as ``http:/a``, which browsers take as relative on a page of the same scheme."""
    return value if name != "href" or value.lower().startswith(("http://", "https://")) else None


def render_card(text: str) -> Markup:
    """Render a card, whose text is foreign: no HTML, script, image or style of it reaches the page.

    Headings are two levels lower, below those of the page. Links are marked as content of users.
    """
    parser = _parser()
    tokens = parser.parse(_FRONT_MATTER.sub("", text))
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1]) + 2, 6)}"
    html = parser.renderer.render(tokens, parser.options, {})
    clean = nh3.clean(
        html,
        tags=_TAGS,
        attributes=_LINK,
        url_schemes={"http", "https"},
        url_relative="deny",
        attribute_filter=_keep_attribute,
        link_rel="nofollow ugc noopener noreferrer",
    )
    return Markup(clean)  # noqa: S704 - cleaned above
