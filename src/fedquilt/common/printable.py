"""Text from outside, made safe to print: names in files and messages of peers may hold what a terminal obeys."""

from __future__ import annotations

import logging
import re
import reprlib
from typing import Any

# Control characters (C0 but tab and line feed, DEL, C1), separators that end a line, marks that change the direction of text or
# are invisible (zero-width joiners are left: scripts and emoji need them), and surrogates, which no encoding can write.
_OBEYED = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f"
)
_ON_LINES, _ON_ONE_LINE = re.compile(f"[{_OBEYED}]"), re.compile(f"[{_OBEYED}\t\n]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_LONGEST_SHOWN = 80  # characters of a wrong value in an error


def printable(text: str, lines: bool = False) -> str:
    r"""`text` with every character that a terminal would obey, or would not show, as an escape such as `\u001b`.

    The escapes are those of JSON, so that JSON stays JSON. `lines`: the text may have line feeds and tabs.
    """
    return (_ON_LINES if lines else _ON_ONE_LINE).sub(_escape, text)


def shortened(text: str, most: int = 1500) -> str:
    """`text` without its middle where it is longer than `most` characters: an error may quote what is very long."""
    return text if len(text) <= most else f"{text[: most // 2]} [...] {text[-most // 2 :]}"


def shown(value: Any) -> str:
    """A wrong value as an error quotes it: its `repr`, short, whatever the value is."""
    brief = reprlib.Repr()
    brief.maxstring = brief.maxother = brief.maxlong = _LONGEST_SHOWN
    try:
        text = brief.repr(value)
    except ValueError:  # Python does not write whole numbers of more than 4,300 digits
        text = f"a {type(value).__name__} with a number of thousands of digits"
    return printable(text)


def fault_of_text(text: str) -> str | None:
    """What makes `text` unfit for a name or a path, in words that follow "it has"; None where it is fit."""
    if "\0" in text:
        return "a NUL character"
    if _SURROGATES.search(text):
        return "a character that is not text (half of a surrogate pair, or bytes that are not UTF-8)"
    return None


def fault_of_name(text: str) -> str | None:
    """The same for a name that people give: it has no control characters either, as figures and other programs show it too."""
    found = _CONTROL.search(text)
    return fault_of_text(text) or (None if found is None else f"a control character ({_escape(found)})")


def printable_logger(name: str) -> logging.Logger:
    """The logger of this name, whose records are printable, tracebacks included."""
    logger = logging.getLogger(name)
    if not any(isinstance(known, _Printable) for known in logger.filters):
        logger.addFilter(_Printable())
    return logger


class _Printable(logging.Filter):
    """Makes records printable; it leaves none out."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = printable(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = printable(logging.Formatter().formatException(record.exc_info), lines=True)
        return True


def _escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
