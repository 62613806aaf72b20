"""Mem0 as a process: a line of JSON in, a line of JSON out. Run by its own environment's Python.

The first line is its configuration; each other one is the arguments of `add` or of `search`.
"""

import json
import sys
from typing import Any

from mem0 import Memory


def main() -> None:
    """Answer until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # it prints notices
    memory: Any = Memory.from_config(json.loads(sys.stdin.readline()))
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        arguments = json.loads(line)
        if "query" in arguments:
            found = memory.search(**arguments)["results"]
            answer = [result["memory"] for result in found]
        else:
            answer = len(memory.add(**arguments)["results"])
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
