"""The HTTP face of a store: routes, limits, and the life of the process around them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import orjson
from fastapi import Depends, FastAPI, Header
from fastapi.responses import Response
from pydantic import BaseModel

from kaos_memory.api import problems
from kaos_memory.api.limits import BodyLimit, Places
from kaos_memory.authorization.decide import reach, writer
from kaos_memory.contract import (
    Erasure,
    ForgetRequest,
    ForgetResponse,
    Id,
    ListRequest,
    ListResponse,
    RecallRequest,
    RecallResponse,
    Scope,
    WriteRequest,
    WriteResponse,
)
from kaos_memory.identity.caller import Caller
from kaos_memory.memory import Memory
from kaos_memory.settings import ServiceSettings
from kaos_memory.storage.protocol import Storage, StorageMisconfigured, StorageUnavailable
from kaos_memory.tiers.reach import Reach
from kaos_memory.work.workers import Workers

_REOPEN_SECONDS = 1.0
_log = logging.getLogger(__name__)


async def _caller(x_actor: Annotated[Id, Header()] = None) -> Caller:
    return Caller(actor=x_actor)


Called = Annotated[Caller, Depends(_caller)]


@dataclass
class Parts:
    """What the routes need."""

    settings: ServiceSettings
    storage: Storage
    memory: Memory
    workers: Workers
    warm_up: Callable[[], None]
    """Loads what the first request would otherwise wait for."""
    closing: Sequence[Callable[[], Awaitable[None]]] = ()
    """Ends the connections to models, last of all."""
    problem: str | None = field(default="the storage has not been reached yet")
    """Why the store is not ready, as far as opening the storage goes; None once it is open."""


def create_app(parts: Parts) -> FastAPI:
    """Build the application around its parts."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        opening = asyncio.create_task(_open(parts))
        try:
            yield
        finally:
            opening.cancel()
            await asyncio.gather(opening, return_exceptions=True)
            # The server has used up to half of the time for requests; the rest is for work.
            await parts.workers.stop(parts.settings.server.drain_seconds / 2)
            await parts.storage.close()
            for close in parts.closing:
                await close()

    app = FastAPI(title="Agent memory", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(BodyLimit)
    problems.install(app)
    _probes(app, parts)
    _operations(app, parts)
    return app


async def _open(parts: Parts) -> None:
    """Open the storage however long that takes: the process lives and is not ready meanwhile."""
    await asyncio.to_thread(parts.warm_up)
    while True:
        try:
            await parts.storage.open()
        except (StorageUnavailable, StorageMisconfigured) as error:
            if parts.problem != str(error):
                _log.error("storage_not_open", extra={"reason": str(error)})
            parts.problem = str(error)
        except Exception as error:  # noqa: BLE001 - logged, shown by /readyz, tried again
            _log.exception("storage_not_open")
            parts.problem = f"opening the storage failed ({type(error).__name__}); see the log"
        else:
            parts.problem = None
            parts.workers.start()
            _log.info("storage_open")
            return
        await asyncio.sleep(_REOPEN_SECONDS)


def _probes(app: FastAPI, parts: Parts) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process runs. Nothing that it depends on is asked."""
        return {"status": "ok"}

    @app.get("/readyz", response_model=None)
    async def readyz() -> Response:
        """Whether every tier's storage answers now."""
        reason = parts.problem
        if reason is None:
            try:
                await parts.storage.ping()
            except (StorageUnavailable, TimeoutError):
                reason = "the storage does not answer"
        state: bool | str = True if reason is None else reason
        body = {"ready": reason is None, "stores": {"short_term": state, "longterm": state}}
        return _json(body, 200 if reason is None else 503)


def _operations(app: FastAPI, parts: Parts) -> None:
    memory = parts.memory
    places = Places(parts.settings.request_concurrency)

    place = Depends(places.take)

    def covered(scope: Scope, who: Caller) -> Reach:
        return reach(scope, who, parts.settings.max_read_scope)

    @app.post("/v1/recall", response_model=RecallResponse, dependencies=[place])
    async def recall(body: RecallRequest, who: Called) -> Response:
        """The context for a new turn."""
        answer = await memory.recall(
            covered(body.scope, who),
            body.query,
            top_k=body.top_k,
            include=body.include,
            token_budget=body.short_term_token_budget,
        )
        return _answer(answer)

    @app.post("/v1/list", response_model=ListResponse, dependencies=[place])
    async def list_page(body: ListRequest, who: Called) -> Response:
        """Everything at a scope, page by page."""
        page = await memory.list_page(
            covered(body.scope, who),
            include=body.include,
            token_budget=body.short_term_token_budget,
            limit=body.limit,
            cursor=body.cursor,
        )
        return _answer(ListResponse(**dict(page.answer), next_cursor=page.next_cursor))

    @app.post("/v1/write", response_model=WriteResponse, dependencies=[place])
    async def write(body: WriteRequest, who: Called) -> Response:
        """Store turns: 202 where background work became due with them."""
        written = await memory.write(
            writer(body.attribution, who),
            body.all_turns(),
            infer=body.infer,
            failure_mode=body.failure_mode,
        )
        answer = WriteResponse(
            accepted=written.stored, scheduled=written.scheduled, degraded=not written.stored
        )
        return _answer(answer, 202 if written.scheduled else 200)

    @app.post("/v1/forget", response_model=ForgetResponse, dependencies=[place])
    async def forget(body: ForgetRequest, who: Called) -> Response:
        """Erase a scope in every tier."""
        receipt = await memory.forget(
            covered(body.scope, who), failure_mode=body.failure_mode, dry_run=body.dry_run
        )
        return _answer(_forgotten(receipt, dry_run=body.dry_run))


def _forgotten(receipt: Erasure | None, *, dry_run: bool) -> ForgetResponse:
    gone = receipt is not None and not dry_run and receipt.residue == 0
    return ForgetResponse(forgotten=gone, degraded=not gone and not dry_run, receipt=receipt)


def _answer(body: BaseModel, status: int = 200) -> Response:
    return _json(body.model_dump(mode="json", exclude_none=True), status)


def _json(body: dict[str, Any], status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
