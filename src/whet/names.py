"""Names from a model, escaped for where they are printed.

PyTorch allows any module name without a dot: newlines, quotes, the end of a comment. Special
characters become escapes, such as `\x2a` for `*`.
"""

from __future__ import annotations

import re

NOT_PLAIN = re.compile(r"[^!-~]|[,\\]")  # spaces, commas, backslashes, control, not ASCII
ESCAPE = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})")

# Sequences that end or begin a comment, join two lines, or are trigraphs.
NOT_IN_COMMENTS = re.compile(r"\*/|/\*|\?\?|\\(?=\s|$)|[^ -~]")
OF_LENGTH = re.compile(r"(train_step|gradients|predict)_(\d+)")


def spelled(text: str) -> str:
    """Every character as an escape sequence."""
    widths = ((0x100, r"\x{:02x}"), (0x10000, r"\u{:04x}"), (0x110000, r"\U{:08x}"))
    codes = map(ord, text)
    return "".join(next(word for end, word in widths if n < end).format(n) for n in codes)


def quoted(name: str) -> str:
    """A name as one word of printable ASCII, without commas; distinct names stay distinct."""
    return NOT_PLAIN.sub(lambda match: spelled(match[0]), name)


def unquoted(word: str) -> str:
    """The inverse of `quoted`."""
    return ESCAPE.sub(lambda match: chr(int(match[1] or match[2] or match[3], 16)), word)


def entry_kind(name: str) -> tuple[str, int | None]:
    """What an entry point does and, if it is for shorter sequences, their length."""
    found = OF_LENGTH.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, None)


def for_comment(text: str) -> str:
    """Text for a C comment: nothing in it ends the comment or triggers a compiler warning."""
    return NOT_IN_COMMENTS.sub(lambda match: spelled(match[0]), text)


def printable(text: str) -> str:
    """Text for a terminal or a report, without control characters and the like."""
    return "".join(c if c.isprintable() or c in "\n\t" else spelled(c) for c in text)
