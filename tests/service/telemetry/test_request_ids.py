"""`X-Request-Id`: kept where it is short and printable, replaced where it is not."""

import re

import pytest

from kaos_memory.telemetry.request_id import MAX_CHARS

from .conftest import Scripted

_MADE = re.compile(r"[0-9a-f]{32}")


async def _id(scripted: Scripted, *given: bytes) -> str:
    headers = [(b"x-request-id", value) for value in given]
    response = await scripted.client.get("/nowhere", headers=headers)
    assert response.status_code == 404
    [answered] = response.headers.get_list("x-request-id")
    return answered


@pytest.mark.parametrize(
    "given", ["r1", "4bf92f35-77b3", "Root=1-67891233-abc;Self=2", "x" * MAX_CHARS]
)
async def test_the_callers_id_comes_back(scripted: Scripted, given: str):
    assert await _id(scripted, given.encode()) == given


@pytest.mark.parametrize(
    "given",
    [
        b"",
        b"two words",
        b"tab\there",
        b"x" * (MAX_CHARS + 1),
        "übung".encode(),
        b"\xff\xfe",
        b"line\r\nSet-Cookie: a=b",
        b"esc\x1b[31m",
        b"nul\x00",
    ],
)
async def test_a_hostile_id_is_replaced(scripted: Scripted, given: bytes):
    assert _MADE.fullmatch(await _id(scripted, given))


async def test_of_two_ids_neither_is_believed(scripted: Scripted):
    assert _MADE.fullmatch(await _id(scripted, b"one", b"two"))


async def test_each_request_without_one_gets_its_own(scripted: Scripted):
    first, second = await _id(scripted), await _id(scripted)
    assert _MADE.fullmatch(first)
    assert first != second
