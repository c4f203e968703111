"""MediaWiki dumps: the prose of pages in namespace 0 that are no redirects."""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from strang.lda.text import bzip
from strang.lda.text.tokens import join
from strang.lda.text.units import MAX_PAGE_BYTES, READ_BYTES, Content, Damage, Part, Unit, head, parts
from strang.lda.text.wikitext import strip
from strang.util.errors import InputError

BZIP_RATIO = 4  # bytes of text per byte of bzip2, about
MAX_BZIP_RATIO = 16  # of a unit, beyond one page
DAMAGED = "a bzip2 block is damaged or cut"
DAMAGED_BLOCK = b"\0"  # stands for the text of a damaged block: pages with it count as damaged
NAMESPACE = re.compile(rb'<namespace key="(-?\d+)"[^>]*>([^<]+)<')
USUAL = b"Media Special Talk User Wikipedia File Image MediaWiki Template Help Category Portal Draft Module".split()
NO_ARTICLE = "a page has no title or text, or a byte 0, which begins"
ENTITIES = ((b"&lt;", b"<"), (b"&gt;", b">"), (b"&quot;", b'"'), (b"&#039;", b"'"), (b"&amp;", b"&"))


def dump_units(path: Path, size: int) -> Iterator[Unit]:
    """Pages of a dump: of bzip2 by ranges of its bytes, otherwise one after another."""
    begin = head(path)
    if b"<mediawiki" not in begin:
        raise InputError(f"{path} is no MediaWiki dump: <mediawiki does not stand at its beginning.")
    names = {name for key, name in NAMESPACE.findall(begin) if key != b"0"}
    others = frozenset(names or (*USUAL, *(name + b" talk" for name in USUAL)))
    if path.suffix != ".bz2":
        for part in parts(path, b"</page>", size):
            yield Unit(path.name, part.size, partial(articles, part, iter(()), others))
        return
    end, step = path.stat().st_size, max(size // BZIP_RATIO, 1)
    for start in range(0, end, step):
        stop = min(start + step, end)
        yield Unit(path.name, stop - start, partial(bzip_articles, path, start, stop, others))


def bzip_articles(path: Path, start: int, stop: int, others: frozenset[bytes]) -> Content:
    """The articles of the pages that begin in the blocks that begin at these bytes."""
    own, damage, size = bytearray(), [], path.stat().st_size
    most = MAX_BZIP_RATIO * (stop - start) + MAX_PAGE_BYTES
    for block in bzip.blocks(path, start, stop):
        too_much = len(own) + len(block.text or b"") > most  # a few bytes of repeated text can be gigabytes
        own += DAMAGED_BLOCK if block.text is None or too_much else block.text
        if block.text is None or too_much:
            what = f"more than {most >> 20} MB of text come out of a few blocks" if too_much else DAMAGED
            damage.append(Damage(what, block.begin // 8, "file"))
        if too_much:
            break
    later = (block for s in range(stop, size, READ_BYTES) for block in bzip.blocks(path, s, min(s + READ_BYTES, size)))
    more = (DAMAGED_BLOCK if block.text is None else block.text for block in later)
    return articles(Part(bytes(own), stop - start, tuple(damage)), more, others)


def articles(part: Part, more: Iterator[bytes], others: frozenset[bytes]) -> Content:
    """The prose of the articles among the pages that begin in a part; `more` is the text behind it."""
    texts, damage, left_out = [], list(part.damage), {"redirects": 0, "other_namespaces": 0}
    text, own = part.text, len(part.text)
    if text.rfind(b"<") > text.rfind(b">"):  # a tag is cut
        text += next(more, b"")
    for place, page in pages(text, own, more):
        wikitext = page if isinstance(page, str) else article(page, others)
        if isinstance(wikitext, bytes):
            texts.append(wikitext)
        elif wikitext in left_out:
            left_out[wikitext] += 1
        else:
            damage.append(Damage(wikitext, place))
    ends = 0 <= text.find(b"</mediawiki>") < own
    return Content(strip(join(texts)), own, tuple(damage), left_out, ends)


def pages(text: bytes, own: int, more: Iterator[bytes]) -> Iterator[tuple[int, bytes | str]]:
    """Where each page begins, if in the first `own` bytes, and the page, which may end in `more`; a str is damage."""
    begin = text.find(b"<page>")
    while 0 <= begin < own:
        end = text.find(b"</page>", begin)
        while end < 0 and len(text) - begin < MAX_PAGE_BYTES and (extra := next(more, b"")):
            sought = max(begin, len(text) - 6)
            text += extra
            end = text.find(b"</page>", sought)
        inner = text.rfind(b"<page>", begin + 6, end if end >= 0 else len(text))
        if inner >= 0:
            yield begin, "a page begins inside another, which begins"
            begin = inner
        elif end < 0:
            long = len(text) - begin >= MAX_PAGE_BYTES
            yield begin, f"{'no end of' if long else 'the dump ends inside'} the page that begins"
            return
        else:
            yield begin, text[begin:end]
            begin = text.find(b"<page>", end)


def article(page: bytes, others: frozenset[bytes]) -> bytes | str:
    """The wikitext of a page; a str says why it is left out, or that it is damaged. Pages of old dumps have no number
    of their namespace; then its name may be among `others`."""
    head = page[: page.find(b"<revision")]
    number, title = (re.search(b"<%b>(.*?)</%b>" % (tag, tag), head, re.DOTALL) for tag in (b"ns", b"title"))
    begin = page.rfind(b"<text")  # of the last revision
    behind = page.find(b">", begin) + 1
    if title is None or begin < 0 or not behind or b"\0" in page:
        return NO_ARTICLE
    space, colon, _ = title[1].partition(b":")
    if (number[1] != b"0") if number else (colon and space in others):
        return "other_namespaces"
    if b"<redirect" in head:
        return "redirects"
    if page[behind - 2 : behind] == b"/>":
        return b""
    end = page.find(b"</text>", behind)
    if end < 0:
        return NO_ARTICLE
    text = page[behind:end]
    if text[:20].lstrip()[:9].upper() == b"#REDIRECT":
        return "redirects"
    for entity, sign in ENTITIES:
        text = text.replace(entity, sign)
    return text
