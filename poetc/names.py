"""How names from the input are shown: in messages, reports and comments of generated code."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with an escape for each character that is not printable (control characters, those
    that change the direction of writing, lone surrogates). Lines stay lines."""
    return "".join(c if c == "\n" or c.isprintable() else _escape(c) for c in text)


def one_line(text: str) -> str:
    """The same where a line ends what it stands in."""
    return printable(text).replace("\n", _escape("\n"))


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
