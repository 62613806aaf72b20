"""DevPostgres: PostgreSQL with pgvector in the cluster, one pod, for development.

Production points a store's `connection_secret_ref` at a managed database instead.
"""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, cast

import pulumi
import pulumi_kubernetes as k8s
import pulumi_random as random

from pulumi_kaos import _dev_postgres_pod as pod
from pulumi_kaos import _pods as pods
from pulumi_kaos import _rules as rules
from pulumi_kaos._arguments import ArgumentsError, checked_later, read, without_echoes
from pulumi_kaos._memory_store_args import ResourcesArgs
from pulumi_kaos._references import SecretReference

DEFAULT_IMAGE = "docker.io/pgvector/pgvector:pg18"
DSN_ENTRY = "dsn"
_KIND = "DevPostgres"
_POLICIES = ("retain", "delete")
_LONGEST_NAME = 253
_DEFAULT_REQUESTS = {"cpu": "100m", "memory": "256Mi"}
_DEFAULT_LIMITS = {"memory": "1Gi"}


class DevPostgresArgs(TypedDict):
    """Arguments of `DevPostgres`."""

    namespace: pulumi.Input[str]
    """Namespace of the database; one per namespace, because its names are fixed."""
    image: NotRequired[str]
    """An image like the public pgvector image. Default docker.io/pgvector/pgvector:pg18."""
    size: NotRequired[str]
    """Size of the volume; it can grow later. Default 5Gi."""
    storage_class: NotRequired[str]
    """Class of the volume. Default: the cluster's default class. It can never change."""
    resources: NotRequired[ResourcesArgs]
    """CPU and memory. Default: requests 100m and 256Mi, limit 1Gi."""
    deletion_policy: NotRequired[str]
    """`retain` protects the volume, its passwords and the Secret that holds them
    (`<resource>-logins-...`) from deletion, and leaves them in the cluster when they leave the
    stack; `delete` lets them go with it. A new stack on an old volume makes new passwords, which
    that volume does not know: set those of the kept Secret there with ALTER ROLE, or restore the
    old state. Default retain: memory is not lost by one wrong command."""


class DevPostgres(pulumi.ComponentResource):
    """A database of its own for the stores of a namespace.

    The stores connect as `kaos`, an ordinary role that owns the database `kaos`: row-level
    security does nothing for a superuser, which the image's own user is.
    """

    secret_name: pulumi.Output[str]
    """Name of the Secret with the DSN: kaos-memory-pgvector."""
    secret_key: pulumi.Output[str]
    """Name of the entry with the DSN: dsn."""
    service_name: pulumi.Output[str]
    """Name of the Service: kaos-memory-pgvector."""

    def __init__(
        self, name: str, args: DevPostgresArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Create the database.

        Raises:
            ArgumentsError: arguments break rules; nothing was created.
        """
        given = _checked(name, cast("Mapping[str, Any]", args))
        super().__init__("kaos:index:DevPostgres", name, None, opts)
        namespace = given["namespace"]
        labels = pods.labels(pod.KIND, pod.NAME)
        child = pulumi.ResourceOptions(parent=self)
        # A volume without its passwords serves nobody. Outside the stack's state they stand in the
        # logins' Secret alone, which therefore stays with the volume.
        retain = given.get("deletion_policy", "retain") == "retain"
        kept = pulumi.ResourceOptions(parent=self, protect=retain, retain_on_delete=retain)
        # Letters and digits only: the DSN needs no quoting.
        superuser = random.RandomPassword(f"{name}-superuser", length=32, special=False, opts=kept)
        password = random.RandomPassword(f"{name}-password", length=32, special=False, opts=kept)
        logins = k8s.core.v1.Secret(
            f"{name}-logins",
            metadata=pods.metadata(namespace, labels),
            string_data={
                pod.SUPERUSER_ENTRY: superuser.result,
                pod.PASSWORD_ENTRY: password.result,
            },
            immutable=True,
            opts=kept,
        )
        scripts = k8s.core.v1.ConfigMap(
            f"{name}-init",
            metadata=pods.metadata(namespace, labels),
            data={pod.INIT_FILE: pod.INIT_SQL},
            immutable=True,
            opts=child,
        )
        volume = k8s.core.v1.PersistentVolumeClaim(
            name,
            metadata=pods.metadata(namespace, labels, name=pod.NAME, annotations=pods.SKIP_AWAIT),
            spec=k8s.core.v1.PersistentVolumeClaimSpecArgs(
                access_modes=["ReadWriteOnce"],
                storage_class_name=given.get("storage_class"),
                resources=k8s.core.v1.VolumeResourceRequirementsArgs(
                    requests={"storage": given.get("size", "5Gi")}
                ),
            ),
            opts=kept,
        )
        service = k8s.core.v1.Service(
            name,
            metadata=pods.metadata(namespace, labels, name=pod.NAME, annotations=pods.SKIP_AWAIT),
            spec=pod.service(),
            opts=child,
        )
        resources: Mapping[str, Any] = given.get("resources", {})
        database = k8s.apps.v1.StatefulSet(
            name,
            metadata=pods.metadata(namespace, labels, name=pod.NAME),
            spec=pod.stateful_set(
                image=given.get("image", DEFAULT_IMAGE),
                claim=_name(volume),
                logins=_name(logins),
                scripts=_name(scripts),
                resources=pods.requirements(
                    _DEFAULT_REQUESTS | resources.get("requests", {}),
                    _DEFAULT_LIMITS | resources.get("limits", {}),
                ),
            ),
            opts=child,
        )
        dsn = pulumi.Output.concat(
            f"postgresql://{pod.ROLE}:",
            password.result,
            f"@{pod.NAME}.",
            namespace,
            f".svc.cluster.local:{pod.PORT}/{pod.ROLE}",
        )
        secret = k8s.core.v1.Secret(
            # With a suffix, or a second database called `<name>-logins` would take the name.
            f"{name}-dsn",
            metadata=pods.metadata(namespace, labels, name=pod.NAME),
            string_data={DSN_ENTRY: dsn},
            # The way in appears when the database answers, so that stores come after it.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[database]),
        )
        self.secret_name = _name(secret)
        self.secret_key = pulumi.Output.from_input(DSN_ENTRY)
        self.service_name = _name(service)
        self.register_outputs(
            {
                "secretName": self.secret_name,
                "secretKey": self.secret_key,
                "serviceName": self.service_name,
            }
        )

    @property
    def reference(self) -> SecretReference:
        """What a store's `connection_secret_ref` takes."""
        return SecretReference(name=self.secret_name, key=DSN_ENTRY)


def _name(
    resource: k8s.core.v1.Secret
    | k8s.core.v1.ConfigMap
    | k8s.core.v1.PersistentVolumeClaim
    | k8s.core.v1.Service,
) -> pulumi.Output[str]:
    return resource.metadata.apply(lambda it: it.name or "")


def dev_postgres_problems(name: str, args: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the arguments, outputs apart; creates nothing."""
    try:
        _checked(name, args)
    except ArgumentsError as error:
        return error.problems
    return []


def _checked(name: str, args: Mapping[str, Any]) -> dict[str, Any]:
    def check(given: Mapping[str, Any]) -> list[str]:
        return _problems(name, given)

    problems: list[str] = []
    given = read(args, DevPostgresArgs, problems)
    problems += without_echoes(problems, check(given))
    if problems:
        raise ArgumentsError(_KIND, name, problems)
    return checked_later(_KIND, name, given, check)


def _problems(name: str, given: Mapping[str, Any]) -> list[str]:
    resources: Mapping[str, Any] = given.get("resources", {})
    policy = given.get("deletion_policy", "retain")
    return [
        *rules.found(
            [
                _resource_name(name),
                rules.label("namespace", given.get("namespace")),
                rules.image("image", given.get("image")),
                rules.quantity("size", given.get("size", "5Gi")),
                rules.subdomain("storage_class", given.get("storage_class")),
                rules.one_of("deletion_policy", policy, _POLICIES),
            ]
        ),
        *rules.resources(
            "resources",
            _DEFAULT_REQUESTS | resources.get("requests", {}),
            _DEFAULT_LIMITS | resources.get("limits", {}),
        ),
    ]


def _resource_name(name: str) -> str | None:
    # Pulumi names the Secret with the logins after the resource, with 8 digits of its own.
    path, derived = "the resource's name", f"{name}-logins-12345678"
    if len(derived) > _LONGEST_NAME:
        room = len(name) - (len(derived) - _LONGEST_NAME)
        return f"{path} has {len(name)} characters: must have {room} at most; shorten it"
    return rules.subdomain(path, name)
