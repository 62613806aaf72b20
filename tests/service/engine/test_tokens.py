"""Counting tokens: offline, quick on any text, and never zero for some text."""

import subprocess
import sys
import time

import pytest

from kaos_memory.engine.tokens import count_tokens, warm_up

LONG = 200_000


def test_no_text_has_no_tokens():
    assert count_tokens("") == 0


@pytest.mark.parametrize(
    ("text", "tokens"), [("hello world", 2), ("a" * 64, 8), ("Grüße aus Köln", 6)]
)
def test_counts_are_those_of_the_encoding(text: str, tokens: int):
    assert count_tokens(text) == tokens


@pytest.mark.parametrize("text", ["<|endoftext|>", "<|fim_prefix|>", "<|endofprompt|>"])
def test_a_special_token_is_ordinary_text(text: str):
    assert count_tokens(text) > 1


@pytest.mark.parametrize("text", ["\x00", "\ud800", "a\udfffb", " ", "\n", "\u200d"])
def test_odd_characters_count(text: str):
    assert count_tokens(text) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "a" * LONG,
        " " * LONG,
        "\n" * LONG,
        " \t\r\n" * (LONG // 4),
        "\N{GRINNING FACE}" * LONG,
        "\N{ZERO WIDTH JOINER}" * LONG,
        "\U0010fffd" * LONG,
        "e\N{COMBINING ACUTE ACCENT}" * (LONG // 2),
        "a's" * (LONG // 3),
        "a" + " " * LONG + "a",
        "\x00" * LONG,
        "\ud800" * LONG,
        "<|endoftext|>" * (LONG // 13),
    ],
    ids=lambda text: ascii(text[:3]),
)
def test_a_hostile_long_text_is_counted_quickly(text: str):
    warm_up()
    started = time.perf_counter()
    assert count_tokens(text) > 1_000
    # 2-15 ms on the machine of the measurements; a quadratic tokenizer takes minutes.
    assert time.perf_counter() - started < 1.0


def test_importing_loads_no_table_and_counting_loads_one_only():
    script = (
        "import sys; from kaos_memory.engine.tokens import count_tokens, warm_up;"
        "import kaos_memory.engine.tokens as t; assert t._tokenizer is None; warm_up();"
        "assert count_tokens('a') == 1; assert 'bpe_openai' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
