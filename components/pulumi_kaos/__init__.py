"""Pulumi components for agent memory on Kubernetes."""

from pulumi_kaos._arguments import ArgumentsError
from pulumi_kaos._memory_store_args import MemoryStoreArgs
from pulumi_kaos._references import ModelApiReference, SecretReference
from pulumi_kaos._rules import dsn_problems
from pulumi_kaos.dev_postgres import DevPostgres, DevPostgresArgs, dev_postgres_problems
from pulumi_kaos.memory_store import MemoryStore, memory_store_problems
from pulumi_kaos.model_api import ModelAPI, ModelApiArgs, model_api_problems

__all__ = [
    "ArgumentsError",
    "DevPostgres",
    "DevPostgresArgs",
    "MemoryStore",
    "MemoryStoreArgs",
    "ModelAPI",
    "ModelApiArgs",
    "ModelApiReference",
    "SecretReference",
    "dev_postgres_problems",
    "dsn_problems",
    "memory_store_problems",
    "model_api_problems",
]
