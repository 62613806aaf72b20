"""Run by the interpreter that has the published package: makes the calls that stdin asks for.

Each line in is a JSON list of calls `{"do": "write" | "recall" | "forget", ...}` with the
client's own arguments. Each line out is the list of what they returned, in order; of one that
raised, `{"raised": ..., "status": ...}`.
"""

import asyncio
import dataclasses
import importlib
import json
import sys
from typing import Any

# By name, because the checkout's package has the same one.
published: Any = importlib.import_module("kaos_memory")


async def do(client: Any, call: dict[str, Any]) -> Any:
    """Make one call."""
    kind = call.pop("do")
    try:
        if kind == "write":
            attribution = published.Attribution(**call.pop("attribution"))
            turns = [(role, content) for role, content in call.pop("turns")]
            return await client.write(attribution, turns, **call)
        scope = published.Scope(**call.pop("scope"))
        if kind == "forget":
            return await client.forget(scope, **call)
        recalled = await client.recall(scope, call.pop("query"), **call)
        window_of_tuples = all(isinstance(turn, tuple) for turn in recalled.short_term.window)
        return {
            **dataclasses.asdict(recalled),
            "is_empty": recalled.is_empty,
            "window_of_tuples": window_of_tuples,
        }
    except Exception as error:  # noqa: BLE001 - reported to the test
        response = getattr(error, "response", None)
        return {"raised": type(error).__name__, "status": getattr(response, "status_code", None)}


async def main(endpoint: str) -> None:
    """Answer line after line with one client, until stdin ends."""
    client = published.MemoryServiceClient(endpoint)
    # Reading blocks the loop: there is nothing else to do meanwhile.
    for line in sys.stdin:
        results = [await do(client, call) for call in json.loads(line)]
        print(json.dumps(results), flush=True)
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
