"""What is proved on the cluster, each as one step."""

import asyncio
import base64
from collections import Counter
from typing import Any

import httpx

from kaos_dev.conversations import Session, present
from tests.e2e import target
from tests.e2e.failure import check
from tests.e2e.store import AGENT, Store, attribution

USERS = ("alice", "bob")
_WRITERS = 4
_SESSIONS = 24
_WRITES_BEFORE_THE_KILL = 60
_WRITES_AFTER_THE_KILL = 240
_MOST_WRITES = 5_000


async def play(store: Store) -> str:
    """Play a conversation turn by turn for two users, and account for every turn of it."""
    sessions = present()
    async with store.client() as client:
        for user in USERS:
            check(await _is_empty(client, user), f"{user}'s memory is not empty at the start")
        await asyncio.gather(*(_say(client, user, sessions) for user in USERS))
        await store.settled()
        for user in USERS:
            await _three_tiers(client, user, sessions[-1])
        await _account(store, sessions)
    turns = sum(len(session.turns) for session in sessions)
    facts = store.rows("SELECT count(*) FROM facts")[0]["count"]
    return f"{len(USERS)} users x {turns} turns in {len(sessions)} sessions; {facts} facts"


async def isolation(store: Store, other: Store) -> str:
    """The other tenant's store knows nothing of it."""
    for table in ("sessions", "turns", "facts", "digests"):
        found = other.rows(f"SELECT count(*) FROM {table}")[0]["count"]
        check(found == 0, f"{found} rows of {table} in the other tenant's database")
    async with other.client() as client:
        for user in USERS:
            check(await _is_empty(client, user), f"the other tenant's store knows {user}")
    return f"nothing of {store.namespace} in {other.namespace}"


async def forget(store: Store) -> str:
    """Erase one user; the other's rows stay identical, and no trace of the first is left."""
    users = "SELECT * FROM {} WHERE principal = 'bob'"
    tables = ("sessions", "turns", "digests", "facts")
    before = {table: store.rows(users.format(table)) for table in tables}
    async with store.client() as client:
        scope = {"level": "user", "principal": "alice"}
        answer = (await client.post("/v1/forget", json={"scope": scope})).json()
        check(answer["forgotten"], f"not forgotten: {answer}")
        check(await _is_empty(client, "alice"), "alice is still remembered")
    after = {table: store.rows(users.format(table)) for table in tables}
    check(before == after, "bob's rows changed")
    named = "SELECT '{0}' AS name FROM {0} row WHERE row::text LIKE '%alice%'"
    left = store.rows(" UNION ".join(named.format(table) for table in store.tables()))
    check(not left, f"alice is still named in {[row['name'] for row in left]}")
    receipt = answer["receipt"]
    return f"{receipt['turns']} turns, {receipt['digests']} digests, {receipt['facts']} facts"


async def kill_during_writes(store: Store) -> str:
    """Kill one of two replicas while clients write: whatever was accepted is stored, once."""
    victim, *others = store.pods()
    check(others, "there is no second replica")
    accepted: list[str] = []
    begin, killed = asyncio.Event(), asyncio.Event()
    attempts = failed = after_kill = 0

    async def write(client: httpx.AsyncClient) -> None:
        nonlocal attempts, failed, after_kill
        while after_kill < _WRITES_AFTER_THE_KILL and attempts < _MOST_WRITES:
            attempts += 1
            after_kill += killed.is_set()
            content = f"write number {attempts}."
            session = f"kill-{attempts % _SESSIONS}"
            try:
                answer = await client.post("/v1/write", json=_turn("carol", session, content))
                if answer.json()["accepted"]:
                    accepted.append(content)
            except (httpx.HTTPError, ValueError, KeyError):
                failed += 1  # the client was told nothing, so nothing was promised
            if attempts >= _WRITES_BEFORE_THE_KILL:
                begin.set()

    async def kill() -> None:
        await begin.wait()
        await asyncio.to_thread(_kill, store, victim)
        killed.set()

    async with store.client() as client:
        await asyncio.gather(kill(), *(write(client) for _ in range(_WRITERS)))
    check(after_kill >= _WRITES_AFTER_THE_KILL, f"only {after_kill} writes after the kill")
    rows = store.rows("SELECT content FROM turns WHERE principal = 'carol'")
    stored = Counter(row["content"] for row in rows)
    lost = [content for content in accepted if stored[content] == 0]
    doubled = [content for content, count in stored.items() if count > 1]
    check(not lost, f"{len(lost)} accepted writes are lost: {lost[:3]}")
    check(not doubled, f"{len(doubled)} writes are stored twice: {doubled[:3]}")
    check(len(accepted) > attempts // 2, f"only {len(accepted)} of {attempts} writes accepted")
    seconds = await asyncio.to_thread(
        target.until,
        "two ready replicas without the victim",
        lambda: store.ready_replicas() == 2 and victim not in store.pods(),
    )
    return (
        f"{len(accepted)} of {attempts} accepted, all stored once; {failed} failed; "
        f"two replicas again after {seconds:.0f} s"
    )


def nothing_left(stores: list[Store]) -> str:
    """Namespaces are gone, and no volume is held."""
    namespaces = {store.namespace for store in stores}

    def gone() -> bool:
        left = {each["metadata"]["name"] for each in target.objects("namespaces")}
        return not namespaces & left

    target.until("the namespaces' end", gone)
    held = [
        volume["metadata"]["name"]
        for volume in target.objects("persistentvolumes")
        if volume["status"]["phase"] == "Bound"
        and volume["spec"]["claimRef"]["namespace"] in namespaces
    ]
    check(not held, f"volumes are still bound: {held}")
    return f"{len(namespaces)} namespaces gone"


def no_secret_in(state: str, stores: list[Store]) -> str:
    """No value of any Secret of the tenants stands in the stack's state, plain or encoded."""
    values: set[str] = set()
    for store in stores:
        for secret in target.objects("secrets", "-n", store.namespace):
            for encoded in secret.get("data", {}).values():
                values |= {encoded, base64.b64decode(encoded).decode()}
    check(len(values) >= 2 * len(stores), "no Secrets were found")
    check(not any(value in state for value in values), "the stack's state holds a secret in plain")
    return f"{len(values) // 2} values of Secrets looked for"


def _turn(user: str, session: str, content: str, role: str = "user") -> dict[str, Any]:
    turns = [{"role": role, "content": content}]
    return {"attribution": attribution(user, session), "turns": turns}


async def _say(client: httpx.AsyncClient, user: str, sessions: list[Session]) -> None:
    for session in sessions:
        for number, (role, content) in enumerate(session.turns):
            body = _turn(user, session.id, content, role)
            key = {"Idempotency-Key": f"{user} {session.id} {number}"}
            answer = await client.post("/v1/write", json=body, headers=key)
            check(answer.json().get("accepted"), f"a write was not accepted: {answer.text[:200]}")


async def _recall(
    client: httpx.AsyncClient, user: str, session: str, query: str = "What happened?"
) -> dict[str, Any]:
    scope = {"level": "user", **attribution(user, session)}
    answer = await client.post("/v1/recall", json={"scope": scope, "query": query})
    check(answer.status_code == 200, f"recall answered {answer.status_code}: {answer.text[:200]}")
    return answer.json()


async def _is_empty(client: httpx.AsyncClient, user: str) -> bool:
    found = await _recall(client, user, present()[0].id)
    check(not found["degraded"], "the recall was degraded")
    tiers = (found["short_term"]["window"], found["medium_term"]["summary"])
    return not any(tiers) and not found["long_term"]["facts"]


async def _three_tiers(client: httpx.AsyncClient, user: str, session: Session) -> None:
    found = await _recall(client, user, session.id, session.turns[0][1])
    window = [tuple(turn) for turn in found["short_term"]["window"]]
    check(window, "the window is empty")
    check(window == list(session.turns[-len(window) :]), "the window does not hold the last turns")
    check(found["medium_term"]["summary"], "there is no digest")
    facts = found["long_term"]["facts"]
    check(facts, "no facts are recalled")
    check(all(fact["user_id"] == user for fact in facts), "a fact of somebody else is recalled")
    check(all(fact["agent_id"] == AGENT for fact in facts), "a fact of another agent")


async def _account(store: Store, sessions: list[Session]) -> None:
    """Every turn is in the window or in a digest, and what left the window was extracted."""
    rows = store.rows(
        "SELECT s.*, (SELECT count(*) FROM turns t WHERE t.session_ref = s.id) AS kept, "
        "(SELECT sum(d.last_position - d.first_position + 1) FROM digests d "
        "WHERE d.session_ref = s.id) AS digested FROM sessions s"
    )
    lengths = {session.id: len(session.turns) for session in sessions}
    check(len(rows) == len(USERS) * len(sessions), f"{len(rows)} sessions are stored")
    for row in rows:
        name = f"{row['principal']}/{row['session']}"
        check(row["last_position"] == lengths[row["session"]], f"{name} has lost or doubled turns")
        check(row["folded_through"] == row["evicted_through"], f"{name} has turns without digest")
        check(row["extracted_through"] == row["evicted_through"], f"{name} is not extracted")
        check(row["kept"] == row["last_position"] - row["evicted_through"], f"{name}: rows")
        check((row["digested"] or 0) == row["folded_through"], f"{name}: digests overlap or gap")


def _kill(store: Store, pod: str) -> None:
    target.kubectl("-n", store.namespace, "delete", "pod", pod, "--grace-period=0", "--force")
