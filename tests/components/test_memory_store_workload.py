"""The objects of a store: rollout, disruption, placement, names, outputs."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from kaos_dev import recording
from kaos_dev.render import Rendered
from pulumi_kaos import _rules as rules
from pulumi_kaos._store_status import store_status

from .samples import recorded, rendered, store, store_args


def built(**changes: Any) -> Rendered:
    return rendered(lambda: store(store_args(**changes)))


def deployment(**changes: Any) -> dict[str, Any]:
    name = changes.get("name", "support")
    return built(**changes).manifest("Deployment", f"memorystore-{name}")


def pod(**changes: Any) -> dict[str, Any]:
    return deployment(**changes)["spec"]["template"]["spec"]


def container(**changes: Any) -> dict[str, Any]:
    return pod(**changes)["containers"][0]


def test_preview_and_update_register_the_same():
    def program() -> None:
        store(store_args())

    seen = [
        {(r.type, r.name, r.parent) for r in recorded(program, preview=preview).resources}
        for preview in (True, False)
    ]
    assert seen[0] == seen[1]
    assert {kind for kind, _, _ in seen[0]} == {
        "pulumi:pulumi:Stack",
        "kaos:index:MemoryStore",
        "kubernetes:apps/v1:Deployment",
        "kubernetes:core/v1:Service",
        "kubernetes:core/v1:ServiceAccount",
        "kubernetes:policy/v1:PodDisruptionBudget",
    }


def test_children_belong_to_the_store():
    resources = recorded(lambda: store(store_args())).resources
    component = next(r for r in resources if r.type == "kaos:index:MemoryStore")
    children = [r for r in resources if r.type.startswith("kubernetes:")]
    assert {child.parent for child in children} == {component.urn}


def test_the_component_itself_registers_no_arguments():
    component = recorded(lambda: store(store_args())).of_type("kaos:index:MemoryStore")[0]
    assert component.inputs == {}


def test_everything_has_the_name_of_the_endpoint():
    names = {m["kind"]: m["metadata"]["name"] for m in built(name="other").manifests()}
    assert set(names.values()) == {"memorystore-other"}


def test_the_service_reaches_the_pods():
    rendered_store = built()
    service = rendered_store.manifest("Service", "memorystore-support")
    template = rendered_store.manifest("Deployment", "memorystore-support")["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    port = service["spec"]["ports"][0]
    assert (port["port"], port["targetPort"]) == (8080, "http")
    assert template["spec"]["containers"][0]["ports"][0]["name"] == "http"
    assert service["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}


def test_another_port_moves_the_container_and_not_the_service():
    env = [{"name": "KAOS_MEMORY_SERVER_PORT", "value": "9000"}]
    moved = built(container__env=env)
    assert moved.manifest("Service", "memorystore-support")["spec"]["ports"][0]["port"] == 8080
    template = moved.manifest("Deployment", "memorystore-support")["spec"]["template"]
    assert template["spec"]["containers"][0]["ports"][0]["containerPort"] == 9000


def ports(**changes: Any) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(**changes)["ports"]}


def test_metrics_have_a_port_of_the_pod_and_none_of_the_service():
    assert ports() == {"http": 8080, "metrics": 9464}
    assert len(built().manifest("Service", "memorystore-support")["spec"]["ports"]) == 1


@pytest.mark.parametrize(("port", "shown"), [(9000, {"metrics": 9000}), (0, {})])
def test_the_metrics_port_follows_the_settings(port: int, shown: dict[str, int]):
    env = [{"name": "KAOS_MEMORY_TELEMETRY_METRICS_PORT", "value": str(port)}]
    assert ports(telemetry={"metrics_port": port}) == {"http": 8080, **shown}
    assert ports(container__env=env) == {"http": 8080, **shown}


def test_a_collector_is_named_by_container_env():
    collector = {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}
    assert collector in container(container__env=[collector])["env"]


def test_two_replicas_are_the_default_and_one_update_loses_none():
    spec = deployment()["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


@pytest.mark.parametrize("replicas", [2, 3])
def test_two_replicas_get_a_disruption_budget(replicas: int):
    budgets = [m for m in built(replicas=replicas).manifests() if m["kind"].endswith("Budget")]
    spec = budgets[0]["spec"]
    assert spec["minAvailable"] == 1
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert spec["selector"] == deployment()["spec"]["selector"]


def test_one_replica_gets_none_which_would_block_drains():
    assert not [m for m in built(replicas=1).manifests() if m["kind"].endswith("Budget")]


def test_replicas_are_spread_over_nodes_and_zones():
    spread = pod()["topologySpreadConstraints"]
    assert [c["topologyKey"] for c in spread] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    assert {c["whenUnsatisfiable"] for c in spread} == {"ScheduleAnyway"}
    # As even as can be, counted among the pods of one version.
    assert {c["maxSkew"] for c in spread} == {1}
    assert [c["matchLabelKeys"] for c in spread] == [["pod-template-hash"]] * 2
    selector = deployment()["spec"]["selector"]
    assert [c["labelSelector"] for c in spread] == [selector] * 2


@pytest.mark.parametrize(("drain", "grace"), [(None, 35), (45, 60)])
def test_the_grace_period_follows_the_drain(drain: int | None, grace: int):
    spec = pod(server={"drain_seconds": drain})
    assert spec["terminationGracePeriodSeconds"] == grace
    assert spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"] == 5


def test_a_drain_set_by_container_env_counts_too():
    env = [{"name": "KAOS_MEMORY_SERVER_DRAIN_SECONDS", "value": "100"}]
    assert pod(container__env=env)["terminationGracePeriodSeconds"] == 115


def test_probes_ask_the_two_paths():
    found = container()
    assert found["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert found["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert found["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}


def test_the_container_writes_to_its_two_folders_only():
    found = pod()
    mounts = found["containers"][0]["volumeMounts"]
    assert {m["mountPath"] for m in mounts} == {"/tmp", "/mem0"}
    # Mem0 writes a few megabytes of configuration and history when it is imported.
    sizes = {v["name"]: rules._amount(v["emptyDir"]["sizeLimit"]) for v in found["volumes"]}
    assert sizes.keys() == {"tmp", "mem0"}
    assert all(2**25 <= size <= 2**30 for size in sizes.values() if size is not None)
    assert None not in sizes.values()
    assert found["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_pod_runs_as_the_images_user_without_a_token():
    found = pod()
    assert found["securityContext"]["runAsUser"] == 10001
    assert found["automountServiceAccountToken"] is False
    assert found["enableServiceLinks"] is False
    assert found["serviceAccountName"] == "memorystore-support"
    account = built().manifest("ServiceAccount", "memorystore-support")
    assert account["automountServiceAccountToken"] is False


def test_resources_replace_the_defaults_one_by_one():
    resources = {"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}}
    assert container(resources=resources)["resources"] == {
        "requests": {"cpu": "1", "memory": "256Mi"},
        "limits": {"memory": "2Gi"},
    }


def test_a_rollout_token_changes_the_template_only():
    def templates(token: str | None) -> tuple[Any, Any]:
        found = deployment(rollout_token=token)
        annotations = found["spec"]["template"]["metadata"].pop("annotations", None)
        return annotations, found

    (none, plain), (first, one), (second, two) = map(templates, (None, "1", "2"))
    assert none is None
    assert first == {"memory.kaos.tools/rollout-token": "1"}
    assert second == {"memory.kaos.tools/rollout-token": "2"}
    assert plain == one == two


def test_the_outputs_of_an_update():
    def program() -> None:
        made = store(store_args(namespace=pulumi.Output.from_input("acme")))
        for name in ("endpoint", "ready", "phase", "message", "service_name", "deployment_name"):
            pulumi.export(name, getattr(made, name))

    found = recorded(program)
    assert found.exports == {
        "endpoint": "http://memorystore-support.acme.svc.cluster.local:8080",
        "ready": True,
        "phase": "Ready",
        "message": "2 of 2 replicas are available",
        "service_name": "memorystore-support",
        "deployment_name": "memorystore-support",
    }
    urn = found.of_type("kaos:index:MemoryStore")[0].urn
    assert found.outputs[urn]["endpoint"] == found.exports["endpoint"]
    assert found.outputs[urn]["serviceName"] == "memorystore-support"


def test_a_store_without_all_its_replicas_is_not_ready(monkeypatch: pytest.MonkeyPatch):
    answer = recording._answer

    def degraded(token: str, name: str, inputs: dict[str, Any], *, preview: bool) -> dict[str, Any]:
        found = answer(token, name, inputs, preview=preview)
        if token.endswith(":Deployment"):
            found["status"] = {"replicas": 2, "availableReplicas": 1}
        return found

    monkeypatch.setattr(recording, "_answer", degraded)

    def program() -> None:
        made = store(store_args())
        for name in ("ready", "phase", "message"):
            pulumi.export(name, getattr(made, name))

    found = recorded(program)
    expected = {
        "ready": False,
        "phase": "Pending",
        "message": "1 of 2 replicas are available",
    }
    assert found.exports == expected
    registered = found.outputs[found.of_type("kaos:index:MemoryStore")[0].urn]
    assert {name: registered[name] for name in expected} == expected


def test_a_preview_knows_the_endpoint_already():
    def program() -> None:
        pulumi.export("endpoint", store(store_args()).endpoint)

    endpoint = recorded(program, preview=True).exports["endpoint"]
    assert endpoint == "http://memorystore-support.acme.svc.cluster.local:8080"


def condition(kind: str, status: str) -> k8s.apps.v1.outputs.DeploymentCondition:
    return k8s.apps.v1.outputs.DeploymentCondition(type=kind, status=status, message="why")


@pytest.mark.parametrize(
    ("available", "conditions", "phase", "message"),
    [
        (2, [], "Ready", "2 of 2 replicas are available"),
        (1, [condition("Progressing", "True")], "Pending", "1 of 2 replicas are available"),
        (None, [condition("Progressing", "False")], "Failed", "0 of 2 replicas are available: why"),
        (0, [condition("ReplicaFailure", "True")], "Failed", "0 of 2 replicas are available: why"),
    ],
)
def test_the_phase_follows_the_deployment(
    available: int | None, conditions: list[Any], phase: str, message: str
):
    status = k8s.apps.v1.outputs.DeploymentStatus(
        available_replicas=available, conditions=conditions
    )
    found = store_status(status, 2)
    assert (found.phase, found.message) == (phase, message)


def test_a_deployment_without_status_is_pending():
    assert store_status(None, 1).phase == "Pending"


def test_a_reason_stands_in_for_a_message():
    refused = k8s.apps.v1.outputs.DeploymentCondition(
        type="ReplicaFailure", status="True", reason="FailedCreate"
    )
    status = k8s.apps.v1.outputs.DeploymentStatus(available_replicas=0, conditions=[refused])
    assert store_status(status, 1).message == "0 of 1 replicas are available: FailedCreate"


def test_a_pod_may_stop_for_as_long_as_the_service_takes():
    # Half of the drain for requests, half for work, then up to 5 s for the database's connections.
    for drain in (1, 20, 600):
        spec = pod(server={"drain_seconds": drain})
        before = spec["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert spec["terminationGracePeriodSeconds"] - before >= drain + 5 + 5
