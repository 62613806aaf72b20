"""Exported receipts: a file with one JSON object on each line, read with suspicion."""

from dataclasses import dataclass
from typing import IO

from pydantic import ValidationError

from kaos_memory.contract import Erasure

MAX_LINE_BYTES = 4_096
"""Five times as long as the longest receipt."""
MAX_RECEIPTS = 100_000
_MOST_PROBLEMS = 20


class UnusableFile(Exception):
    """A file that is not an export of receipts. `problems` names its lines and what is wrong."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


@dataclass(frozen=True)
class Line:
    """A receipt and where it stands."""

    number: int
    receipt: Erasure


def read_receipts(file: IO[bytes]) -> list[Line]:
    """All receipts of an export; blank lines do not count.

    Raises:
        UnusableFile: some lines are no receipts, or there are too many lines.
    """
    lines: list[Line] = []
    problems: list[str] = []
    number = 0
    while text := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(text) > MAX_LINE_BYTES:
            problems.append(f"line {number} is longer than {MAX_LINE_BYTES} bytes: no receipt")
            break  # what follows is the rest of this line, or of something else altogether
        if not text.strip():
            continue
        try:
            lines.append(Line(number, _receipt(text)))
        except ValueError as error:
            problems.append(f"line {number} is no receipt: {error}")
        if len(problems) == _MOST_PROBLEMS:
            problems.append("reading stopped here; is this an export of receipts?")
            break
        if len(lines) > MAX_RECEIPTS:
            problems.append(f"more than {MAX_RECEIPTS} receipts; replay them in several files")
            break
    if problems:
        raise UnusableFile(problems)
    return lines


def _receipt(text: bytes) -> Erasure:
    try:
        receipt = Erasure.model_validate_json(text)
    except ValidationError as error:
        # Without the input: whatever was taken for an export may hold anything.
        finding = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, finding["loc"]))
        raise ValueError(f"{where}: {finding['msg']}" if where else finding["msg"]) from None
    if receipt.id is None or receipt.erased_at is None:
        raise ValueError("it is the plan of an erasure")
    return receipt
