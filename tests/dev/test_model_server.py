import json
import os
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from kaos_dev.model_server import CHAT_MODEL, EMBEDDING_MODEL, Behaviour, ModelServer

ROOT = Path(__file__).parents[2]
QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What do I drink?"}]


async def test_a_missing_and_a_wrong_key_are_refused(models: ModelServer):
    for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic wrong"}):
        async with httpx.AsyncClient(headers=header) as client:
            for path in ("models", "models/gpt-4o-mini"):
                assert (await client.get(f"{models.url}/{path}")).status_code == 401
            answer = await client.post(f"{models.url}/embeddings", json={})
            assert answer.status_code == 401
            assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_unknown_models_are_not_found(client: openai.AsyncOpenAI):
    with pytest.raises(openai.NotFoundError) as chat:
        await client.chat.completions.create(model="gpt-9", messages=QUESTION)
    assert chat.value.code == "model_not_found"
    for model in ("gpt-9", "hash-0", "hash-99999"):
        with pytest.raises(openai.NotFoundError):
            await client.embeddings.create(model=model, input="tea")
    with pytest.raises(openai.NotFoundError, match="not a chat model"):
        await client.chat.completions.create(model=EMBEDDING_MODEL, messages=QUESTION)
    with pytest.raises(openai.PermissionDeniedError):
        await client.embeddings.create(model=CHAT_MODEL, input="tea")


async def test_the_catalogue_names_the_models(client: openai.AsyncOpenAI):
    names = [model.id async for model in client.models.list()]
    assert {CHAT_MODEL, EMBEDDING_MODEL, "gpt-4o-mini", "text-embedding-3-small"} <= set(names)
    assert (await client.models.retrieve("hash-77")).id == "hash-77"


def test_the_command_prints_its_address_and_takes_its_script_over_http():
    command = [sys.executable, "-m", "kaos_dev.model_server", "--scriptable"]
    environment = {**os.environ, "MODEL_SERVER_API_KEY": "sk-test"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        root = url.removesuffix("/v1")
        assert httpx.get(f"{root}/healthz").json() == {"status": "ok"}
        assert httpx.get(f"{root}/_requests").status_code == 401
        with httpx.Client(base_url=root, headers={"authorization": "Bearer sk-test"}) as client:
            fault = {"endpoint": "chat", "status": 503}
            assert client.post("/_script", json=[fault]).status_code == 204
            assert client.post("/_script", json=[{"endpoint": "tea"}]).status_code == 422
            chat = {"model": "gpt-4o-mini", "messages": QUESTION}
            statuses = [client.post("/v1/chat/completions", json=chat).status_code for _ in "12"]
            assert statuses == [503, 200]
            assert [seen["status"] for seen in client.get("/_requests").json()] == [503, 200]
            assert client.post("/_release").status_code == 204
        process.terminate()
        assert process.wait(10) in {0, -15}


async def test_without_permission_there_is_no_scripting_over_http(models: ModelServer):
    root = models.url.removesuffix("/v1")
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {models.api_key}"}) as client:
        assert (await client.get(f"{root}/_requests")).status_code == 404
        assert (await client.post(f"{root}/_script", json=[])).status_code == 404


def test_stopping_releases_what_hangs_and_frees_the_port():
    server = ModelServer()
    server.start()
    server.script(Behaviour(endpoint="embeddings", hang=True))
    with ThreadPoolExecutor(1) as threads:
        hung = threads.submit(
            httpx.post,
            f"{server.url}/embeddings",
            headers={"authorization": f"Bearer {server.api_key}"},
            json={"model": "hash-8", "input": "tea"},
        )
        server.requests.wait_for(lambda seen: len(seen) == 1)
        server.stop()
        assert hung.result().status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url)


def test_the_image_has_the_versions_of_the_lock():
    dockerfile = (ROOT / "dev/kaos_dev/model_server/Dockerfile").read_text()
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    locked = {(package["name"], package["version"]) for package in lock["package"]}
    installed = set(re.findall(r"^\s+([a-z0-9-]+)==([\w.]+)", dockerfile, re.MULTILINE))
    assert len(installed) >= 10
    assert installed <= locked
