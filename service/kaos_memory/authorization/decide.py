"""Which owners a request covers, or why it is refused.

A level covers, for an agent A that acts for P / a person P / an admin:
session (P, A, S) / (P, *, S) / (*, *, S); agent (P, A) / (P, A) / (*, A);
user (P, *) / (P, *) / (P, *); store refused / refused / all. So the levels nest.
"""

from kaos_memory.contract import Attribution, FactRequest, Scope, ScopeLevel
from kaos_memory.identity.caller import Caller
from kaos_memory.settings import MaxReadScope
from kaos_memory.tiers.memory import NO_PRINCIPAL, Owner
from kaos_memory.tiers.reach import Owners, Reach

_WIDTH = {
    ScopeLevel.SESSION: 0,
    ScopeLevel.AGENT: 1,
    ScopeLevel.USER: 2,
    ScopeLevel.STORE: 3,
}


class Denied(Exception):
    """The caller may not do this."""


class Incomplete(Exception):
    """The scope does not name the identity that its level is about."""


class MissingSession(Exception):
    """A write does not name its session."""


class WiderThanSession(Exception):
    """What can be done to one session only is asked for at a wider level."""


def reach(scope: Scope, caller: Caller, max_read_scope: MaxReadScope) -> Reach:
    """What a read or an erasure covers.

    With verification disabled the names in the scope are believed, and what is not named is
    not narrowed; an acting agent (`X-Actor`) without a principal acts for itself.

    Raises:
        Incomplete: the scope lacks an identity.
        Denied: an agent asks for the store level, or for more than the store allows agents.
    """
    if caller.actor and scope.level is ScopeLevel.STORE:
        raise Denied("store scope is admin-only")
    if not scope.is_complete():
        raise Incomplete(f"incomplete {scope.level} scope")
    if caller.actor and _WIDTH[scope.level] > _WIDTH[ScopeLevel(max_read_scope)]:
        raise Denied(f"{scope.level} scope exceeds the store's maxReadScope {max_read_scope}")
    agent = scope.agent_client_id or caller.actor
    principal = scope.principal or (NO_PRINCIPAL if caller.actor else None)
    owners = {
        ScopeLevel.SESSION: Owners(principal, agent, scope.session_id),
        ScopeLevel.AGENT: Owners(principal, agent),
        ScopeLevel.USER: Owners(principal),
        ScopeLevel.STORE: Owners(),
    }
    return Reach(
        level=scope.level,
        owners=owners[scope.level],
        conversations=Owners(principal, agent, scope.session_id) if scope.session_id else None,
    )


def scope_of(request: FactRequest, caller: Caller) -> Scope:
    """Where a fact is looked for: without a level, in an agent's own memory, or in all."""
    level, agent = request.level, request.agent_client_id
    if level is None and caller.actor:
        level, agent = ScopeLevel.AGENT, agent or caller.actor
    return Scope(
        level=level or ScopeLevel.STORE,
        principal=request.principal,
        agent_client_id=agent,
        session_id=request.session_id,
    )


def session_of(covered: Reach) -> Reach:
    """The same reach, if it is that of a session.

    Raises:
        WiderThanSession: it is not.
    """
    if covered.level is not ScopeLevel.SESSION:
        raise WiderThanSession
    return covered


def writer(attribution: Attribution, caller: Caller) -> Owner:
    """Whose conversation a write goes to.

    Raises:
        Denied: no agent writes. People and admins read and erase.
        MissingSession: turns belong to a session.
    """
    agent = attribution.agent_client_id or caller.actor
    if agent is None:
        raise Denied("missing required agent identity")
    if attribution.session_id is None:
        raise MissingSession
    return Owner(attribution.principal or NO_PRINCIPAL, agent, attribution.session_id)
