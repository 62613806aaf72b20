"""`python -m bench.bare DSN PORT`: the floor, a service that does the least a store must do.

The same framework and server as ours. A write is one statement that inserts the turns durably; a
recall is one that reads a session's window within the token budget. No validation, no tenants, no
counting of tokens, no locks, no background work.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import asyncpg
import orjson
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response

_CONNECTIONS = 16
_BUDGET = 4_096
_TABLE = """
    CREATE TABLE IF NOT EXISTS turns (
        session text NOT NULL, position bigint GENERATED ALWAYS AS IDENTITY, role text NOT NULL,
        content text NOT NULL, tokens integer NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (session, position)
    )
"""
_INSERT = """
    INSERT INTO turns (session, role, content, tokens)
    SELECT $1, role, content, 60 FROM unnest($2::text[], $3::text[]) AS new (role, content)
"""
_WINDOW = """
    SELECT role, content FROM (
        SELECT position, role, content, sum(tokens) OVER (ORDER BY position DESC) AS running
        FROM turns WHERE session = $1
    ) summed
    WHERE running <= $2 ORDER BY position
"""
_WRITTEN = b'{"accepted":true,"scheduled":false,"degraded":false}'


def create_app(dsn: str) -> FastAPI:
    """Build the application."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[dict[str, asyncpg.Pool]]:
        async with asyncpg.create_pool(dsn, min_size=1, max_size=_CONNECTIONS) as pool:
            await pool.execute(_TABLE)
            yield {"pool": pool}

    app = FastAPI(openapi_url=None, lifespan=lifespan)

    @app.get("/readyz")
    async def ready() -> Response:
        return Response()

    @app.post("/v1/write")
    async def write(request: Request) -> Response:
        body = orjson.loads(await request.body())
        roles, contents = ([turn[key] for turn in body["turns"]] for key in ("role", "content"))
        await request.state.pool.execute(
            _INSERT, body["attribution"]["session_id"], roles, contents
        )
        return Response(_WRITTEN, media_type="application/json")

    @app.post("/v1/recall")
    async def recall(request: Request) -> Response:
        body = orjson.loads(await request.body())
        rows = await request.state.pool.fetch(_WINDOW, body["scope"]["session_id"], _BUDGET)
        answer = {"short_term": {"window": [tuple(row) for row in rows]}, "degraded": False}
        return Response(orjson.dumps(answer), media_type="application/json")

    return app


if __name__ == "__main__":
    uvicorn.run(create_app(sys.argv[1]), port=int(sys.argv[2]), access_log=False, log_config=None)
