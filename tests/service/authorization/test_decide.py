"""Which owners each level covers, for whom."""

import pytest

from kaos_memory.authorization.decide import Denied, Incomplete, MissingSession, reach, writer
from kaos_memory.contract import Attribution, Scope, ScopeLevel
from kaos_memory.identity.caller import Caller
from kaos_memory.settings import MaxReadScope
from kaos_memory.tiers.memory import NO_PRINCIPAL, Owner
from kaos_memory.tiers.reach import Owners, Reach

P, A, S, B = "alice", "kaos://agent/ns/a", "s-1", "kaos://agent/ns/b"
PERSON = Caller()


def decided(
    level: str,
    principal: str | None = None,
    agent: str | None = None,
    session: str | None = None,
    *,
    actor: str | None = None,
    ceiling: MaxReadScope = MaxReadScope.USER,
) -> Reach:
    scope = Scope(
        level=ScopeLevel(level), principal=principal, agent_client_id=agent, session_id=session
    )
    return reach(scope, Caller(actor), ceiling)


@pytest.mark.parametrize(
    ("named", "owners", "conversations"),
    [
        (("session", P, A, S), Owners(P, A, S), Owners(P, A, S)),
        (("session", P, None, S), Owners(P, None, S), Owners(P, None, S)),
        (("session", None, None, S), Owners(None, None, S), Owners(None, None, S)),
        (("agent", P, A, S), Owners(P, A), Owners(P, A, S)),
        (("agent", P, A), Owners(P, A), None),
        (("agent", None, A), Owners(None, A), None),
        (("user", P, A, S), Owners(P), Owners(P, A, S)),
        (("user", P, None, S), Owners(P), Owners(P, None, S)),
        (("user", P), Owners(P), None),
        (("store",), Owners(), None),
        (("store", P, A, S), Owners(), Owners(P, A, S)),
    ],
)
def test_a_person_or_an_admin_covers_what_is_named(
    named: tuple[str, ...], owners: Owners, conversations: Owners | None
):
    found = decided(*named)
    assert found.owners == owners
    assert found.conversations == conversations


@pytest.mark.parametrize(
    ("named", "owners", "conversations"),
    [
        (("session", P, None, S), Owners(P, A, S), Owners(P, A, S)),
        (("session", None, None, S), Owners(NO_PRINCIPAL, A, S), Owners(NO_PRINCIPAL, A, S)),
        (("agent", None, A), Owners(NO_PRINCIPAL, A), None),
        (("user", P, None, S), Owners(P), Owners(P, A, S)),
    ],
)
def test_an_acting_agent_sees_its_own_conversations_and_without_a_user_is_its_own(
    named: tuple[str, ...], owners: Owners, conversations: Owners | None
):
    found = decided(*named, actor=A)
    assert found.owners == owners
    assert found.conversations == conversations


@pytest.mark.parametrize("level", ["session", "agent", "user"])
def test_a_scope_without_the_identity_of_its_level_is_incomplete(level: str):
    with pytest.raises(Incomplete, match=f"incomplete {level} scope"):
        decided(level)


@pytest.mark.parametrize(
    ("ceiling", "allowed"),
    [
        (MaxReadScope.SESSION, {"session"}),
        (MaxReadScope.AGENT, {"session", "agent"}),
        (MaxReadScope.USER, {"session", "agent", "user"}),
    ],
)
def test_the_ceiling_caps_actors_only(ceiling: MaxReadScope, allowed: set[str]):
    for level in ("session", "agent", "user", "store"):
        decided(level, P, A, S, ceiling=ceiling)
        if level in allowed:
            decided(level, P, A, S, actor=A, ceiling=ceiling)
        else:
            with pytest.raises(Denied):
                decided(level, P, A, S, actor=A, ceiling=ceiling)


def test_a_write_goes_to_the_agent_that_is_named_or_acts():
    full = Attribution(principal=P, agent_client_id=A, session_id=S)
    assert writer(full, PERSON) == Owner(P, A, S)
    assert writer(full, Caller(B)) == Owner(P, A, S)
    unnamed = Attribution(session_id=S)
    assert writer(unnamed, Caller(B)) == Owner(NO_PRINCIPAL, B, S)


def test_a_write_needs_an_agent_and_a_session():
    with pytest.raises(Denied, match="missing required agent identity"):
        writer(Attribution(principal=P, session_id=S), PERSON)
    with pytest.raises(MissingSession):
        writer(Attribution(principal=P, agent_client_id=A), PERSON)
