"""Whatever is sent, on either storage: a documented answer, no crash, the next one is served."""

import socket
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import psutil
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_dev.model_server import ModelServer
from kaos_dev.service_process import ServiceProcess
from kaos_memory.api.app import create_app
from kaos_memory.assembly import assemble
from kaos_memory.settings import validate
from kaos_memory.telemetry.spans import Telemetry

from .conftest import OWNER, store_environment
from .hostile import WHO, requests_to

MOST_GROWTH_BYTES = 48 * 2**20
"""Of the process over further barrages. After the first, caches and pools are as they stay."""

DATABASE = "hostile_requests"


@pytest.fixture(scope="module", params=["external", "local"])
def service(
    request: pytest.FixtureRequest,
    postgres: EmbeddedPostgres,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp(request.param)
    postgres.create_database(DATABASE, owner=OWNER)
    with ModelServer() as models:
        environment = store_environment(postgres.dsn(DATABASE, OWNER), models)
        if request.param == "local":
            environment = {k: v for k, v in environment.items() if "EXTERNAL" not in k} | {
                "KAOS_MEMORY_STORAGE_TYPE": "local",
                "KAOS_MEMORY_LOCAL_PATH": str(folder / "memory"),
            }
        with ServiceProcess(environment, folder / "log") as process:
            yield process
    postgres.drop_database(DATABASE)


@pytest.fixture
def http(service: ServiceProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service.url, timeout=30) as opened:
        yield opened


def described() -> dict[str, Any]:
    """The OpenAPI document of the service: the same whatever its settings."""
    return create_app(assemble(validate({}), Telemetry())).openapi()


DOCUMENT = described()
operations = schemathesis.openapi.from_dict(DOCUMENT)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# Generating takes longer than asking, so that neither time says anything about the service.
UNHURRIED = settings(
    deadline=None,
    suppress_health_check=[
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
    ],
    database=None,
)


@operations.parametrize()  # pyright: ignore[reportUntypedFunctionDecorator] - it has no types
@settings(UNHURRIED, max_examples=50, derandomize=True)
def test_every_operation_answers_as_documented(
    case: schemathesis.Case[Any], service: ServiceProcess
):
    case.call_and_validate(base_url=service.url, checks=CHECKS)


@pytest.mark.slow
@pytest.mark.timeout(900)
@operations.parametrize()  # pyright: ignore[reportUntypedFunctionDecorator] - it has no types
@settings(UNHURRIED, max_examples=150)
def test_every_operation_answers_as_documented_however_often_it_is_asked(
    case: schemathesis.Case[Any], service: ServiceProcess
):
    case.call_and_validate(base_url=service.url, checks=CHECKS)


def test_the_document_is_the_services(http: httpx.Client):
    assert http.get("/openapi.json").json() == DOCUMENT


def works(http: httpx.Client) -> None:
    """An ordinary user is served."""
    who = WHO | {"principal": "bob"}
    turn = {"role": "user", "content": "I like green tea."}
    written = http.post("/v1/write", json={"attribution": who, "turns": [turn]})
    assert written.json()["accepted"] is True, written.text
    scope = {"level": "session"} | who
    found = http.post("/v1/recall", json={"scope": scope, "query": "tea"})
    assert ["user", "I like green tea."] in found.json()["short_term"]["window"]
    assert found.json()["degraded"] is False


def complaints(
    http: httpx.Client, request: httpx.Request, documented: Mapping[str, Any]
) -> Iterator[str]:
    """What is wrong with the answer to a request."""
    request.url = http.base_url.copy_with(raw_path=request.url.raw_path)
    answer = http.send(request)
    about = f"{request.method} {str(request.url)[:80]} {request.content[:80]!r}: "
    about += f"{request.headers.raw[-1]!r:.80}: {answer.status_code}"
    if answer.status_code >= 500:
        yield f"{about} is a server error"
    as_documented = documented.get(str(answer.status_code), {}).get("content", {})
    if answer.headers["content-type"] not in as_documented:
        yield f"{about} {answer.headers['content-type']} is not documented"
    if answer.status_code >= 400 and len(answer.content) > 8_192:
        yield f"{about} is a refusal of {len(answer.content)} bytes"


def barrage(http: httpx.Client) -> None:
    """Send all hostile requests to all operations."""
    found = [
        complaint
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
        for request in requests_to(path, method)
        for complaint in complaints(http, request, operation["responses"])
    ]
    assert not found, "\n".join(found[:20])


def test_hostile_texts_bodies_and_headers_are_answered_and_keep_nobody_from_working(
    http: httpx.Client,
):
    barrage(http)
    works(http)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_hostile_requests_leave_nothing_behind_in_memory(
    service: ServiceProcess, http: httpx.Client
):
    process = psutil.Process(service.pid)
    barrage(http)
    before = process.memory_info().rss
    for _ in range(4):
        barrage(http)
    assert process.memory_info().rss - before < MOST_GROWTH_BYTES
    works(http)


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00" * 1_000,
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/write HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"POST /v1/write HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"POST /v1/write HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/write HTTP/1.1\r\nhost: x\r\nx-actor: a\x00b\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /v1/write HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n{",
    ],
)
def test_what_is_hardly_http_costs_nobody_else_anything(
    service: ServiceProcess, http: httpx.Client, sent: bytes
):
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
        connection.sendall(sent)
        works(http)
