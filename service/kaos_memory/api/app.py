"""The HTTP face of a store: routes, limits, and the life of the process around them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from fastapi.telemetry import TelemetryConfig

from kaos_memory.api import problems
from kaos_memory.api.limits import BodyLimit, Places
from kaos_memory.api.operations import Call, Operation, answer, mount
from kaos_memory.api.request_ids import RequestIds
from kaos_memory.authorization.decide import reach, scope_of, session_of, writer
from kaos_memory.contract import (
    CloseRequest,
    CloseResponse,
    Erasure,
    ErasureRequest,
    FactRequest,
    FactResponse,
    ForgetRequest,
    ForgetResponse,
    ListRequest,
    ListResponse,
    RecallRequest,
    RecallResponse,
    Scope,
    WriteRequest,
    WriteResponse,
)
from kaos_memory.memory import Memory
from kaos_memory.settings import ServiceSettings
from kaos_memory.storage.protocol import Storage, StorageMisconfigured, StorageUnavailable
from kaos_memory.telemetry.spans import Telemetry
from kaos_memory.tiers.reach import Reach
from kaos_memory.work.housekeeping import Housekeeping
from kaos_memory.work.workers import Workers

_REOPEN_SECONDS = 1.0
_log = logging.getLogger(__name__)


@dataclass
class Parts:
    """What the routes need."""

    settings: ServiceSettings
    storage: Storage
    memory: Memory
    workers: Workers
    housekeeping: Housekeeping
    telemetry: Telemetry = field(default_factory=Telemetry)
    warm_up: Callable[[], None] = lambda: None
    """Loads what the first request would otherwise wait for."""
    closing: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """Ends the connections to models, and then what tells of it, last of all."""
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
            await parts.housekeeping.stop()
            await parts.workers.stop(parts.settings.server.drain_seconds / 2)
            await parts.storage.close()
            for close in parts.closing:
                await close()

    app = FastAPI(
        title="Agent memory",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        # Its own telemetry could export the messages of exceptions; ours tells what may be told.
        telemetry=TelemetryConfig(
            tracing=False, metrics=False, logs=False, operation_spans=False, auto_configure=False
        ),
    )
    instruments = parts.telemetry.instruments
    app.add_middleware(BodyLimit, refused=instruments.body_rejected)
    app.add_middleware(RequestIds)
    problems.install(app)
    # First, as routes are tried in order.
    places = Places(parts.settings.request_concurrency)
    mount(app, _operations(parts), places, parts.telemetry)
    _probes(app, parts)
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
            problem = f"opening the storage failed ({type(error).__name__}); see the log"
            if parts.problem != problem:
                _log.exception("storage_not_open")
            parts.problem = problem
        else:
            parts.problem = None
            parts.workers.start()
            parts.housekeeping.start()
            _log.info("storage_open")
            return
        await asyncio.sleep(_REOPEN_SECONDS)


def _probes(app: FastAPI, parts: Parts) -> None:
    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """The process runs. Nothing that it depends on is asked."""
        return {"status": "ok"}

    unready = {"description": "Not ready; the body says why"}

    @app.get("/readyz", response_model=None, responses={503: unready})
    async def readyz() -> Response:
        """Whether every tier's storage answers now."""
        reason = parts.problem
        if reason is None:
            try:
                await parts.storage.ping()
            except (StorageUnavailable, TimeoutError):
                reason = "the storage does not answer"
            except StorageMisconfigured as error:
                reason = str(error)
        state: bool | str = True if reason is None else reason
        body = {"ready": reason is None, "stores": {"short_term": state, "longterm": state}}
        return JSONResponse(body, 200 if reason is None else 503)


def _operations(parts: Parts) -> list[Operation]:
    memory, settings = parts.memory, parts.settings

    def covered(scope: Scope, call: Call) -> Reach:
        return reach(scope, call.caller, settings.max_read_scope)

    async def recall(body: RecallRequest, call: Call) -> Response:
        found = await memory.recall(
            covered(body.scope, call),
            body.query,
            top_k=body.top_k,
            include=body.include,
            token_budget=body.short_term_token_budget,
        )
        return answer(found)

    async def list_page(body: ListRequest, call: Call) -> Response:
        page = await memory.list_page(
            covered(body.scope, call),
            include=body.include,
            token_budget=body.short_term_token_budget,
            limit=body.limit,
            cursor=body.cursor,
        )
        return answer(ListResponse(**dict(page.answer), next_cursor=page.next_cursor))

    async def write(body: WriteRequest, call: Call) -> Response:
        written = await memory.write(
            writer(body.attribution, call.caller),
            body.all_turns(),
            infer=body.infer,
            failure_mode=body.failure_mode,
            idempotency_key=call.idempotency_key,
        )
        shown = WriteResponse(
            accepted=written.stored, scheduled=written.scheduled, degraded=not written.stored
        )
        return answer(shown, 202 if written.scheduled else 200)

    async def close(body: CloseRequest, call: Call) -> Response:
        scheduled = await memory.close_sessions(session_of(covered(body.scope, call)))
        return answer(CloseResponse(scheduled=scheduled), 202 if scheduled else 200)

    async def forget(body: ForgetRequest, call: Call) -> Response:
        within = covered(body.scope, call)
        with parts.telemetry.part("erase"):
            receipt = await memory.forget(
                within,
                failure_mode=body.failure_mode,
                dry_run=body.dry_run,
                by=call.caller.actor,
            )
        return answer(_forgotten(receipt, dry_run=body.dry_run))

    async def fact(asked: FactRequest, call: Call) -> Response:
        within = covered(scope_of(asked, call.caller), call)
        return answer(await memory.fact(within, asked.fact_id))

    async def forget_fact(asked: FactRequest, call: Call) -> Response:
        within = covered(scope_of(asked, call.caller), call)
        receipt = await memory.forget_fact(within, asked.fact_id, by=call.caller.actor)
        return answer(_forgotten(receipt, dry_run=False))

    async def receipt(asked: ErasureRequest, call: Call) -> Response:
        return answer(await memory.receipt(asked.erasure_id, to=call.caller.actor))

    return [
        Operation(
            "/v1/recall", "The context for a new turn", RecallRequest, RecallResponse, recall
        ),
        Operation(
            "/v1/list", "Everything at a scope, by pages", ListRequest, ListResponse, list_page
        ),
        Operation(
            "/v1/write",
            "Store turns; 202: work is due with them",
            WriteRequest,
            WriteResponse,
            write,
            idempotent=True,
            changes=True,
            schedules=True,
        ),
        Operation(
            "/v1/sessions/close",
            "Have a session extracted now; 202: work is due for it",
            CloseRequest,
            CloseResponse,
            close,
            changes=True,
            schedules=True,
        ),
        Operation(
            "/v1/forget",
            "Erase a scope in every tier",
            ForgetRequest,
            ForgetResponse,
            forget,
            changes=True,
        ),
        Operation(
            "/v1/facts/{fact_id}",
            "A fact and where it comes from",
            FactRequest,
            FactResponse,
            fact,
            method="GET",
        ),
        Operation(
            "/v1/facts/{fact_id}",
            "Erase a fact",
            FactRequest,
            ForgetResponse,
            forget_fact,
            method="DELETE",
            changes=True,
        ),
        Operation(
            "/v1/erasures/{erasure_id}",
            "The receipt of an erasure",
            ErasureRequest,
            Erasure,
            receipt,
            method="GET",
        ),
    ]


def _forgotten(receipt: Erasure | None, *, dry_run: bool) -> ForgetResponse:
    gone = receipt is not None and not dry_run and receipt.residue == 0
    return ForgetResponse(forgotten=gone, degraded=not gone and not dry_run, receipt=receipt)
