# SPDX-License-Identifier: Apache-2.0
"""page.py FILE EXPRESSION: checks that a page of foundry-store report is well-formed, loads nothing
and has only the tags that it should have, and that the expression is true: tags is a list of (name,
attributes), text all text."""
import re
import sys
from html.parser import HTMLParser

ALLOWED = set("html head meta title style body main header nav a h1 h2 h3 p div span strong small "
              "code i b table thead tbody tr th td details summary svg g path rect text "
              "footer".split())


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data


def overlaps(source):
    """Squares of a picture that lie upon another, or outside of it."""
    for picture in re.findall(r"<svg.*?</svg>", source, re.S):
        width, height = map(int, re.search(r'viewBox="0 0 (\d+) (\d+)"', picture).groups())
        places = [tuple(map(int, m)) for m in re.findall(r"M(\d+) (\d+)h(\d+)v", picture)]
        yield from (p for p in places if p[0] + p[2] > width or p[1] + p[2] > height)
        if len(set(places)) < len(places):
            yield picture[:80]


with open(sys.argv[1], encoding="utf-8") as f:
    source = f.read()
page = Page()
page.feed(source)
page.close()
tags, text = page.tags, page.text
assert not page.open, page.open
assert {t for t, _ in tags} <= ALLOWED, {t for t, _ in tags} - ALLOWED
for tag, attrs in tags:
    assert not {"src", "srcset", "data"} & set(attrs), attrs
    assert not [key for key in attrs if key.startswith("on")], attrs
    assert tag != "a" or attrs["href"].startswith("#"), attrs
assert not [w for _, a in tags for k, w in a.items() if k == "style" and "url" in w]
style = re.search("<style>.*?</style>", source, re.S)[0]
assert "url(" not in style and "@import" not in style
assert not list(overlaps(source)), list(overlaps(source))[:3]
assert eval(f"({sys.argv[2]})"), sys.argv[2]  # pylint: disable=eval-used # written in a test
