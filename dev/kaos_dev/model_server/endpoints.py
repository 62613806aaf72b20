"""The endpoints that models answer: from a parsed body to a response."""

import asyncio
import base64
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import orjson
from fastapi import Response
from fastapi.responses import StreamingResponse

from kaos_dev.model_server.completions import complete
from kaos_dev.model_server.embeddings import embed
from kaos_dev.model_server.errors import ApiError, unknown_model
from kaos_dev.model_server.models import (
    ChatModel,
    EmbeddingModel,
    chat_model,
    embedding_model,
    is_rerank_model,
)
from kaos_dev.model_server.requests import ChatRequest, EmbeddingRequest, RerankRequest
from kaos_dev.model_server.reranking import ranked
from kaos_dev.model_server.script import Behaviour


async def answer_chat(body: dict[str, Any], fault: Behaviour | None) -> Response:
    """Answer `POST /v1/chat/completions`.

    Raises:
        ApiError: A rule that spans fields is broken, or the model is unknown.
        ValidationError: A field is wrong.
    """
    request = ChatRequest.model_validate(body)
    model = _chat_model(request.model)
    request.check()
    completion = complete(model, request, fault)
    if not request.stream:
        return _json(completion.body())
    options = request.stream_options
    events = completion.events(include_usage=options is not None and options.include_usage)
    return StreamingResponse(events, media_type="text/event-stream")


async def answer_embeddings(
    executor: ThreadPoolExecutor, body: dict[str, Any], fault: Behaviour | None
) -> Response:
    """Answer `POST /v1/embeddings`; `executor` computes the vectors of the real model.

    Raises:
        ApiError: A text is empty or too long, or the model is unknown.
        ValidationError: A field is wrong.
    """
    del fault  # its delay and status have been played; it cannot change a vector
    request = EmbeddingRequest.model_validate(body)
    model = _embedding_model(request.model)
    return await asyncio.get_running_loop().run_in_executor(
        executor if model.semantic else None,
        partial(_embed, model, request.texts(), request),
    )


async def answer_rerank(body: dict[str, Any], fault: Behaviour | None) -> Response:
    """Answer `POST /v1/rerank`.

    Raises:
        ApiError: A text is empty, there are too many, or the model is unknown.
        ValidationError: A field is wrong.
    """
    del fault  # its delay and status have been played; it cannot change a score
    request = RerankRequest.model_validate(body)
    if chat_model(request.model) is not None:
        message = f"The model `{request.model}` does not rerank."
        raise ApiError(message, param="model")
    if not is_rerank_model(request.model):
        raise unknown_model(request.model)
    request.check()
    return _json({"model": request.model, "results": ranked(request)})


def _embed(model: EmbeddingModel, texts: list[str], request: EmbeddingRequest) -> Response:
    vectors, tokens = embed(model, texts, request.dimensions)
    as_base64 = request.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _base64(vector) if as_base64 else vector,
        }
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return _json({"object": "list", "data": data, "model": model.name, "usage": usage})


def _base64(vector: Any) -> str:
    return base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()


def _chat_model(name: str) -> ChatModel:
    model = chat_model(name)
    if model is not None:
        return model
    if embedding_model(name) is None:
        raise unknown_model(name)
    message = "This is not a chat model and thus not supported in the v1/chat/completions endpoint."
    raise ApiError(message, status=404, param="model")


def _embedding_model(name: str) -> EmbeddingModel:
    model = embedding_model(name)
    if model is not None:
        return model
    if chat_model(name) is None:
        raise unknown_model(name)
    raise ApiError("You are not allowed to generate embeddings from this model", status=403)


def _json(body: dict[str, Any]) -> Response:
    content = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, media_type="application/json")
