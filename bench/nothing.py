"""`python -m bench.nothing PORT`: a service that reads each body and does nothing with it.

The floor of any service on this stack: HTTP, the framework's routing, and an answer.
"""

import sys

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response


def create_app() -> FastAPI:
    """Build the application."""
    app = FastAPI(openapi_url=None)

    @app.get("/")
    async def ready() -> Response:
        return Response()

    @app.post("/v1/write")
    async def write(request: Request) -> Response:
        await request.body()
        return Response(b"{}", media_type="application/json")

    return app


if __name__ == "__main__":
    uvicorn.run(create_app(), port=int(sys.argv[1]), access_log=False, log_config=None)
