"""The recorder: each resource as the program registered it, and no other way."""

import pulumi
import pulumi_kubernetes as k8s
import pulumi_random as random
import pytest

from kaos_dev.recording import Recording, Resource, Secret, record


def config_map(name: str, opts: pulumi.ResourceOptions | None = None) -> k8s.core.v1.ConfigMap:
    return k8s.core.v1.ConfigMap(name, data={"a": name}, opts=opts)


def test_each_option_is_recorded_for_itself():
    options = {
        "plain": pulumi.ResourceOptions(),
        "protected": pulumi.ResourceOptions(protect=True),
        "retained": pulumi.ResourceOptions(retain_on_delete=True),
        "deleted first": pulumi.ResourceOptions(delete_before_replace=True),
    }

    def program() -> None:
        for name, opts in options.items():
            config_map(name, opts)

    found = {
        r.name: (r.protect, r.retain_on_delete, r.delete_before_replace)
        for r in record(program).resources
    }
    assert {name: found[name] for name in options} == {
        "plain": (False, False, False),
        "protected": (True, False, False),
        "retained": (False, True, False),
        "deleted first": (False, False, True),
    }


def of_name(recording: Recording, name: str) -> Resource:
    (found,) = [r for r in recording.resources if r.name == name]
    return found


def test_the_provider_is_the_one_that_was_given():
    def program() -> None:
        first, second = k8s.Provider("first"), k8s.Provider("second")
        config_map("a", pulumi.ResourceOptions(provider=first))
        config_map("b", pulumi.ResourceOptions(provider=second))
        config_map("c")

    recording = record(program)
    for name, provider in [("a", "first"), ("b", "second")]:
        assert (
            of_name(recording, name).provider
            == f"{of_name(recording, provider).urn}::{provider}-id"
        )
    assert of_name(recording, "c").provider == ""


def test_dependencies_are_those_of_the_resource():
    def program() -> None:
        first = config_map("first")
        config_map("second", pulumi.ResourceOptions(depends_on=[first]))
        third = config_map("third")
        k8s.core.v1.ConfigMap("fourth", data=third.data)

    recording = record(program)
    found = {r.name: r.dependencies for r in recording.resources}
    assert found["first"] == found["third"] == ()
    assert found["second"] == (of_name(recording, "first").urn,)
    assert found["fourth"] == (of_name(recording, "third").urn,)


def test_a_child_names_its_parent():
    def program() -> None:
        parent = pulumi.ComponentResource("a:b:C", "parent")
        config_map("child", pulumi.ResourceOptions(parent=parent))

    recording = record(program)
    parent = of_name(recording, "parent")
    assert of_name(recording, "child").parent == parent.urn
    assert (parent.custom, of_name(recording, "child").custom) == (False, True)


@pytest.mark.parametrize(("length", "special"), [(32, False), (8, False), (32, True)])
def test_a_password_is_as_long_and_as_plain_as_it_was_asked_for(length: int, special: bool):
    def program() -> None:
        made = random.RandomPassword("p", length=length, special=special)
        pulumi.export("password", made.result)

    password = record(program).exports["password"]
    assert isinstance(password, Secret)
    assert len(password.value) == length
    assert password.value.isalnum() is not special


def test_two_resources_of_one_name_are_refused():
    def program() -> None:
        config_map("a")
        config_map("a")

    with pytest.raises(Exception, match="Duplicate resource URN"):
        record(program)
