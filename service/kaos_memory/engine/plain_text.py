"""Text on its way to a model and back: what no storage takes, and what no line may hold."""

import re

from kaos_memory.tiers.memory import Turn

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

MAX_TURN_TOKENS = 60_000
"""Tokens of one turn that a prompt shows. Any text of 200,000 letters fits; a longer one, of rare
characters, is shown without its middle, because a model would refuse it for ever."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile(r"[\\\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]")
_SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}


def clean(text: str) -> str:
    """The text without NUL and lone surrogates, which PostgreSQL and UTF-8 do not take."""
    return _UNSTORABLE.sub(REPLACEMENT, text)


def one_line(text: str) -> str:
    r"""The text on one line: line ends, controls and the backslash as `\n`, `\u2028`, `\\`."""
    return _CONTROL.sub(_escaped, clean(text))


def _escaped(found: re.Match[str]) -> str:
    character = found.group()
    return _SHORT.get(character) or f"\\u{ord(character):04x}"


def indented(text: str) -> str:
    """The text with all its line ends as such, and every line but the first indented.

    For readers of `speaker: text`: no line of the text can pass for another speaker's.
    """
    return "\n    ".join(clean(text).splitlines())


def excerpt(turn: Turn) -> str:
    """The turn's content as prompts show it: without its middle if it is too long."""
    content = turn.content
    if turn.tokens > MAX_TURN_TOKENS:
        kept = len(content) * MAX_TURN_TOKENS // turn.tokens
        tail = kept // 4
        head = kept - tail
        content = f"{content[:head]} [{len(content) - kept} characters] {content[-tail:]}"
    return clean(content)


def clipped(text: str, most_bytes: int) -> str:
    """The longest beginning of a text that has at most so many bytes in UTF-8."""
    encoded = clean(text).encode()
    return encoded[:most_bytes].decode(errors="ignore")
