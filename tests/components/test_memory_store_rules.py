"""Every broken rule is told before anything is registered, in preview as in update."""

from typing import Any, cast

import pulumi
import pytest

from kaos_dev.recording import Recording, record
from pulumi_kaos import ArgumentsError, memory_store_problems

from .broken_containers import CONTAINERS
from .broken_settings import SETTINGS
from .samples import store, store_args

BROKEN = SETTINGS | CONTAINERS


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("preview", [True, False], ids=["preview", "update"])
def test_nothing_is_registered_when_a_rule_is_broken(case: str, preview: bool):
    changes, text = BROKEN[case]
    recording = Recording()

    def program() -> None:
        store(store_args(**changes))

    with pytest.raises(ArgumentsError) as caught:
        record(program, preview=preview, into=recording)
    assert text in str(caught.value)
    assert [resource.type for resource in recording.resources] == ["pulumi:pulumi:Stack"]


@pytest.mark.parametrize("case", BROKEN)
def test_every_problem_names_the_resource_and_no_secret(case: str):
    problems = memory_store_problems("support", store_args(**BROKEN[case][0]))
    assert len(problems) >= 1
    for problem in problems:
        assert problem.startswith("MemoryStore support: ")
        assert "hunter2" not in problem
        assert "placeholder" not in problem


@pytest.mark.parametrize("case", sorted(BROKEN.keys() - {"local storage with replicas"}))
def test_one_fault_is_told_once(case: str):
    assert len(memory_store_problems("support", store_args(**BROKEN[case][0]))) == 1


def test_all_problems_are_told_at_once():
    problems = memory_store_problems(
        "support",
        store_args(
            name="Upper",
            replicas=0,
            max_read_scope="store",
            medium_term__compaction_trigger=5000,
            storage__external__embedding_dims=9000,
            auth=None,
            engin="mem0",
            container__env=[{"name": "KAOS_MEMORY_ENGIN", "value": "x"}],
        ),
    )
    assert len(problems) == 8


def test_a_number_must_be_plain():
    args = store_args(replicas=pulumi.Output.from_input(2))
    (problem,) = memory_store_problems("support", args)
    assert problem == (
        "MemoryStore support: replicas must be a plain value, not an output: it decides what is "
        "created; take it from the configuration"
    )


@pytest.mark.parametrize(
    "image",
    [
        "kaos-memorystore:0.1.0",
        "localhost:5000/kaos/memorystore:dev",
        "ghcr.io/x/y@sha256:" + "a" * 64,
        "ghcr.io/x/y:1@sha256:" + "a" * 64,
    ],
)
def test_pinned_images_are_taken(image: str):
    assert memory_store_problems("support", store_args(image=image)) == []


def test_the_longest_name_is_taken():
    assert memory_store_problems("support", store_args(name="x" * 51)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"replicas": 100},
        {"rollout_token": "x" * 256},
        {"rollout_token": ""},
        {"container__env": [{"name": "X", "value": "x" * 131_069}]},
        {"models__embedding__model_api": {"endpoint": "http://[::1]:65535/v1"}},
        {"resources": {"limits": {"ephemeral-storage": "1Gi", "cpu": "2"}}},
        {"storage__external__connection_secret_ref": {"name": "x", "key": ".env"}},
    ],
)
def test_what_is_just_allowed_is_taken(changes: dict[str, Any]):
    assert memory_store_problems("support", store_args(**changes)) == []


@pytest.mark.parametrize(
    ("request_", "limit", "taken"),
    [
        ("1000m", "1", True),
        ("1001m", "1", False),
        ("1Ki", "1024", True),
        ("1024", "1Ki", True),
        ("1025", "1Ki", False),
        ("1Ki", "1k", False),
        ("1.5Gi", "1536Mi", True),
        ("1537Mi", "1.5Gi", False),
    ],
)
def test_quantities_are_compared_as_kubernetes_reads_them(request_: str, limit: str, taken: bool):
    resources = {"requests": {"cpu": request_}, "limits": {"cpu": limit}}
    problems = memory_store_problems("support", store_args(resources=resources))
    assert (problems == []) is taken


def test_arguments_of_no_kind_are_one_fault():
    (problem,) = memory_store_problems("support", cast("dict[str, Any]", "x"))
    assert problem == "MemoryStore support: args must be a mapping, not text"
