"""A deterministic OpenAI-compatible model server, as strict as the real one."""

from kaos_dev.model_server.models import CHAT_MODEL, EMBEDDING_MODEL, RERANK_MODEL
from kaos_dev.model_server.script import Behaviour, RecordedRequest, Recorder
from kaos_dev.model_server.server import ModelServer

__all__ = [
    "CHAT_MODEL",
    "EMBEDDING_MODEL",
    "RERANK_MODEL",
    "Behaviour",
    "ModelServer",
    "RecordedRequest",
    "Recorder",
]
