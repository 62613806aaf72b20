"""The HTTP side of the model server."""

import asyncio
import hmac
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import orjson
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from kaos_dev.model_server.endpoints import answer_chat, answer_embeddings, answer_rerank
from kaos_dev.model_server.errors import ApiError, error_body, invalid_request, unknown_model
from kaos_dev.model_server.faults import DroppedConnection, Gate, play
from kaos_dev.model_server.models import chat_model, is_rerank_model, model_names
from kaos_dev.model_server.script import (
    Behaviour,
    Endpoint,
    RecordedRequest,
    Recorder,
    Script,
)

Answer = Callable[[dict[str, Any], Behaviour | None], Awaitable[Response]]


@dataclass
class ServerState:
    """What a running server knows, shared with whoever scripts it."""

    api_key: str
    script: Script = field(default_factory=Script)
    recorder: Recorder = field(default_factory=Recorder)
    gate: Gate = field(default_factory=Gate)

    def authorise(self, request: Request) -> None:
        """Check the bearer key.

        Raises:
            ApiError: It is missing or wrong.
        """
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise ApiError(
                "You didn't provide an API key. You need to provide your API key in an "
                "Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
                status=401,
            )
        if not hmac.compare_digest(given.encode(), self.api_key.encode()):
            raise ApiError("Incorrect API key provided.", status=401, code="invalid_api_key")


def create_app(
    state: ServerState, *, scriptable: bool = False, on_ready: Callable[[], None] = lambda: None
) -> FastAPI:
    """Return the application; `on_ready` is called when it is about to accept requests."""
    # One thread: the real model computes one text after the other, never on the event loop.
    semantic_executor = ThreadPoolExecutor(1, thread_name_prefix="minilm")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        state.gate.bind(asyncio.get_running_loop())
        on_ready()
        yield
        semantic_executor.shutdown(wait=True, cancel_futures=True)

    app = FastAPI(
        title="Deterministic OpenAI-compatible model server",
        openapi_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    app.add_exception_handler(ApiError, _refuse)
    app.add_exception_handler(HTTPException, _refuse_url)
    app.add_api_route("/healthz", _healthz)
    app.include_router(_catalogue(state))
    app.include_router(_answers(state, partial(answer_embeddings, semantic_executor)))
    if scriptable:
        app.include_router(_scripting(state))
    return app


def _catalogue(state: ServerState) -> APIRouter:
    router = APIRouter(prefix="/v1/models", dependencies=[Depends(state.authorise)])

    @router.get("")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_describe(name) for name in model_names()]}

    @router.get("/{name}")
    async def model(name: str) -> dict[str, Any]:
        if chat_model(name) is None and not is_rerank_model(name):
            raise unknown_model(name)
        return _describe(name)

    return router


def _answers(state: ServerState, answer_embeddings: Answer) -> APIRouter:
    router = APIRouter(prefix="/v1")
    request_numbers = itertools.count(1)

    async def serve(request: Request, endpoint: Endpoint, answer: Answer) -> Response:
        record = _record(endpoint, await request.body())
        state.recorder.add(record)
        try:
            state.authorise(request)
            body = _object(record.body)
            fault = state.script.take(endpoint, record.prompt)
            response = await play(fault, state.gate) or await answer(body, fault)
        except ValidationError as error:
            response = invalid_request(error).response()
        except ApiError as error:
            response = error.response()
        if not isinstance(response, DroppedConnection):
            record.status = response.status_code
            response.headers["x-request-id"] = f"req_{next(request_numbers)}"
        return response

    @router.post("/chat/completions")
    async def chat_completions(request: Request) -> Response:
        return await serve(request, "chat", answer_chat)

    @router.post("/embeddings")
    async def embeddings(request: Request) -> Response:
        return await serve(request, "embeddings", answer_embeddings)

    @router.post("/rerank")
    async def rerank(request: Request) -> Response:
        return await serve(request, "rerank", answer_rerank)

    return router


def _scripting(state: ServerState) -> APIRouter:
    router = APIRouter(dependencies=[Depends(state.authorise)])

    @router.post("/_script", status_code=204)
    async def script(behaviours: list[Behaviour]) -> None:
        state.script.add(*behaviours)

    @router.delete("/_script", status_code=204)
    async def clear_script() -> None:
        state.script.clear()

    @router.post("/_release", status_code=204)
    async def release() -> None:
        state.gate.release()

    @router.get("/_requests")
    async def requests() -> list[dict[str, Any]]:
        return [asdict(request) for request in state.recorder.all()]

    @router.delete("/_requests", status_code=204)
    async def clear_requests() -> None:
        state.recorder.clear()

    return router


async def _healthz() -> dict[str, str]:
    return {"status": "ok"}


async def _refuse(_: Request, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return error.response()


async def _refuse_url(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    message = f"Invalid URL ({request.method} {request.url.path})"
    return JSONResponse(error_body(message), status_code=error.status_code)


def _record(endpoint: Endpoint, raw: bytes) -> RecordedRequest:
    try:
        # Strict as the real one: no NaN, no lone surrogates.
        body: Any = orjson.loads(raw)
    except ValueError:
        body = None
    return RecordedRequest(endpoint, body, "\n".join(_texts(body)))


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise ApiError("We could not parse the JSON body of your request.")
    return body


def _texts(value: Any) -> list[str]:
    """Collect what a model reads, in whatever shape it comes."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, dict):
        keys = ("messages", "content", "text", "input", "query", "documents")
        return _texts([value.get(key) for key in keys])
    return []


def _describe(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "kaos"}
