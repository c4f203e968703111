"""Prose from wikitext in one pass: what stands in templates, tables, references, formulas and comments is left out.

Text is written as it is read. Where a template, table or link begins, its place is remembered, and where it ends what
was written since is taken back, all of it or all but a link's label. So nesting costs nothing, time is linear whatever
is in the page, and brackets that are never closed are just text. Headings, bold and lists need no work: words are
letters.
"""

import numba
import numpy as np

from strang.lda.text.tokens import Texts
from strang.util.simd import COMPILE

TEMPLATE, TABLE, LINK, FILE, CATEGORY, LANGUAGE = range(6)  # what may be open; the last four begin with [[
LETTERS = bytes(range(97, 123))
MAX_DEPTH = 64  # open brackets; with more, the page is no sensible text and those so far count as never closed
DROPPED = (
    b"ref references math chem ce gallery timeline source syntaxhighlight score hiero imagemap graph mapframe maplink "
    b"templatestyles templatedata inputbox"
)
TAGS, PREFIXES = (  # tags whose content is no prose; how links to no pages begin. Rows of bytes, filled up with zeros
    np.array(names.split(), "S16").view(np.uint8).reshape(-1, 16) for names in (DROPPED, b"file image media category")
)
LOWER = np.frombuffer(bytes(range(256)).lower(), np.uint8)  # this and the next four by the value of a byte
IS_LETTER, IN_ENTITY = (np.isin(LOWER, list(some)) for some in (LETTERS, LETTERS + b"0123456789#"))
SPECIAL, ENDS_ADDRESS = (np.isin(np.arange(256), list(some)) for some in (b"<{}|[]:&", b'[]{}|<>"'))
SPACE = 32


def strip(texts: Texts) -> Texts:
    """The prose of each document.

    >>> from strang.lda.text.tokens import join
    >>> strip(join([b"An '''[[apple tree|apple]]'''{{cite|x}} is a [[fruit]].<ref>No.</ref>"])).text.tobytes()
    b"An '''apple'''  is a fruit. "
    """
    out, offsets = np.empty_like(texts.text), np.zeros_like(texts.offsets)
    _strip(texts.text, texts.offsets, out, offsets)
    return Texts(out[: offsets[-1]].copy(), offsets)


@numba.njit(**COMPILE)
def _stands(text, i, stop, name):
    """Whether a name stands at i, in any case and with no letter behind."""
    k = 0
    while name[k] and i + k < stop and LOWER[text[i + k]] == name[k]:
        k += 1
    return name[k] == 0 and not (i + k < stop and IS_LETTER[text[i + k]])


@numba.njit(**COMPILE)
def _tag_end(text, i, stop):
    """Behind the > of the tag at i; 0 if it has none before another begins."""
    for k in range(i + 1, stop):
        if text[k] == 62 or text[k] == 60:
            return k + 1 if text[k] == 62 else 0
    return 0


@numba.njit(**COMPILE)
def _tag(text, i, stop, unclosed):
    """Behind the comment or tag at i, with its content if that is none of the prose; i if it is only a sign <.

    `unclosed` remembers what was sought in vain, so that no page is searched twice for the same."""
    if i + 3 < stop and text[i + 1] == 33 and text[i + 2] == 45 and text[i + 3] == 45:
        if not unclosed[-1]:
            for k in range(i + 4, stop - 2):
                if text[k] == 45 and text[k + 1] == 45 and text[k + 2] == 62:
                    return k + 3
            unclosed[-1] = True
        return i
    if i + 1 >= stop or not (text[i + 1] == 47 or IS_LETTER[text[i + 1]]):
        return i
    end = _tag_end(text, i, stop)
    if end == 0 or text[i + 1] == 47 or text[end - 2] == 47:
        return max(end, i)
    for n in range(len(TAGS)):
        if _stands(text, i + 1, stop, TAGS[n]) and not unclosed[n]:
            for k in range(end, stop - 1):
                if text[k] == 60 and text[k + 1] == 47 and _stands(text, k + 2, stop, TAGS[n]):
                    return max(_tag_end(text, k, stop), k + 2)
            unclosed[n] = True
    return end


@numba.njit(**COMPILE)
def _link_kind(text, i, stop):
    """What the link whose inside begins at i is, by what stands before its first colon."""
    k = i
    while k < min(i + 16, stop) and (IS_LETTER[text[k]] or text[k] == 45):
        k += 1
    if k < i + 2 or k + 1 >= stop or text[k] != 58:
        return LINK
    for n in range(len(PREFIXES)):
        if _stands(text, i, stop, PREFIXES[n]):
            return CATEGORY if n == len(PREFIXES) - 1 else FILE
    for byte in text[i:k]:
        if 65 <= byte <= 90:
            return LINK
    return LANGUAGE if text[k + 1] != SPACE else LINK


@numba.njit(**COMPILE)
def _nearest(kinds, depth, kind):
    """The place of the last opened bracket of a kind; -1 if there is none."""
    while depth > 0 and kinds[depth - 1] != kind:
        depth -= 1
    return depth - 1


@numba.njit(**COMPILE)
def _entity_end(text, i, stop):
    """Behind the entity at i, such as &nbsp; or &#160;; i if it is only a sign &."""
    for k in range(i + 1, min(i + 12, stop)):
        if text[k] == 59:
            return k + 1
        if not IN_ENTITY[text[k]]:
            break
    return i


@numba.njit(**COMPILE)
def _strip(text, offsets, out, out_offsets):
    kinds, places = np.zeros(MAX_DEPTH, np.int64), np.zeros(MAX_DEPTH, np.int64)
    unclosed = np.zeros(len(TAGS) + 1, np.bool_)
    o = 0
    for d in range(len(offsets) - 1):
        i, stop, first, depth = offsets[d], offsets[d + 1], o, 0
        unclosed[:] = False
        while i < stop:
            byte = text[i]
            if not SPECIAL[byte]:
                out[o] = byte
                o, i = o + 1, i + 1
                continue
            following = text[i + 1] if i + 1 < stop else 0
            top = kinds[depth - 1] if depth else -1
            opened, closed, behind = -1, -1, i
            if byte == 60:  # <
                behind = _tag(text, i, stop, unclosed)
            elif byte == 38:  # &
                behind = _entity_end(text, i, stop)
            elif byte == 58 and following == 47 and i + 2 < stop and text[i + 2] == 47:  # ://
                while behind < stop and text[behind] > SPACE and not ENDS_ADDRESS[text[behind]]:
                    behind += 1
                while o > first and IS_LETTER[out[o - 1]]:
                    o -= 1
            elif byte == 123 and following == 123:  # {{
                opened = TEMPLATE
            elif byte == 123 and following == 124 and (o == first or out[o - 1] <= SPACE or out[o - 1] == 58):  # {|
                opened = TABLE
            elif byte == 91 and following == 91:  # [[
                opened = _link_kind(text, i + 2, stop)
            elif byte == 125 and following == 125:  # }}
                closed = _nearest(kinds, depth, TEMPLATE)
            elif byte == 124 and following == 125 and top != TEMPLATE:  # |}
                closed = _nearest(kinds, depth, TABLE)
            elif byte == 93 and following == 93 and top >= LINK:  # ]]: what is not seen in the text is taken back
                depth, i = depth - 1, i + 2
                if top in (CATEGORY, LANGUAGE) or (top == FILE and not (out[places[depth] : o] == SPACE).any()):
                    o = places[depth]
                continue
            if byte == 124 and closed < 0 and top >= LINK:  # the label of a link, or the next part of a picture's
                o, i = places[depth - 1], i + 1
                kinds[depth - 1] = LINK if top == LANGUAGE else top
            elif opened >= 0:
                depth = depth if depth < MAX_DEPTH else 0
                kinds[depth], places[depth] = opened, o
                depth, i = depth + 1, i + 2
            elif closed >= 0:
                depth, o, i = closed, places[closed] + 1, i + 2
                out[o - 1] = SPACE
            elif behind > i:
                out[o] = SPACE
                o, i = o + 1, behind
            else:
                out[o] = SPACE if byte == 124 else byte
                o, i = o + 1, i + 1
        out_offsets[d + 1] = o
