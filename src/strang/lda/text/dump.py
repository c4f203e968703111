"""Articles of a MediaWiki dump: pages of namespace 0 that are no redirects, as wikitext."""

import re
from collections.abc import Iterator

from strang.lda.text.chunks import LONGEST, Damage

NAMESPACE = re.compile(rb'<namespace key="(-?\d+)"[^>]*>([^<]+)<')
USUAL = b"Media Special Talk User Wikipedia File Image MediaWiki Template Help Category Portal Draft Module".split()


def namespaces(head: bytes) -> frozenset[bytes]:
    """The names before the colon of titles that are no articles; old dumps give no number."""
    found = {name for key, name in NAMESPACE.findall(head) if key != b"0"}
    return frozenset(found or (*USUAL, *(name + b" talk" for name in USUAL)))


def pages(text: bytes, own: int, more: Iterator[bytes]) -> Iterator[tuple[int, bytes] | Damage]:
    """The pages that begin in the first `own` bytes, with their places; the last may end in what comes after it."""
    begin = text.find(b"<page>")
    while 0 <= begin < own:
        end = text.find(b"</page>", begin)
        while end < 0 and len(text) - begin < LONGEST and (extra := next(more, b"")):
            sought = max(begin, len(text) - 6)
            text += extra
            end = text.find(b"</page>", sought)
        inner = text.rfind(b"<page>", begin + 6, end if end >= 0 else len(text))
        if inner >= 0:
            yield Damage("a page begins inside another, which begins", begin)
            begin = inner
            continue
        if end < 0:
            long = len(text) - begin >= LONGEST
            yield Damage(f"{'no end of' if long else 'the dump ends inside'} the page that begins", begin)
            return
        yield begin, text[begin:end]
        begin = text.find(b"<page>", end)


def article(page: bytes, others: frozenset[bytes]) -> bytes | str | None:
    """The wikitext of a page; or why it is no article; None if it is damaged."""
    head = page[: page.find(b"<revision")]
    number, title = inside(head, b"ns"), inside(head, b"title")
    begin = page.rfind(b"<text")  # of the last revision
    behind = page.find(b">", begin) + 1
    if title is None or begin < 0 or not behind or b"\0" in page:
        return None
    space, colon, _ = title.partition(b":")
    if number not in (None, b"0") or (number is None and colon and space in others):
        return "other_namespaces"
    if b"<redirect" in head:
        return "redirects"
    if page[behind - 2 : behind] == b"/>":
        return b""
    end = page.find(b"</text>", behind)
    if end < 0:
        return None
    text = page[behind:end]
    if text[:20].lstrip()[:9].upper() == b"#REDIRECT":
        return "redirects"
    for entity, sign in ((b"&lt;", b"<"), (b"&gt;", b">"), (b"&quot;", b'"'), (b"&#039;", b"'"), (b"&amp;", b"&")):
        text = text.replace(entity, sign)
    return text


def inside(page: bytes, tag: bytes) -> bytes | None:
    """What the first such element holds."""
    begin = page.find(b"<" + tag + b">")
    end = page.find(b"</" + tag + b">", begin)
    return page[begin + len(tag) + 2 : end] if 0 <= begin < end else None
