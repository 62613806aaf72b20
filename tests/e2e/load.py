"""Clients that write, close, recall and forget through a store's Service, whatever happens to it.

They behave as the contract asks of clients: a write is sent again under its `Idempotency-Key`
until it is accepted, an erasure until it is done. What they are told is held against what they
know, at once and, for what was promised, at the end.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx

from kaos_dev.model_server.sentences import as_statement
from tests.e2e.failure import E2EError, check
from tests.e2e.store import Store, attribution

RECALL_SECONDS = 5.0
"""How long a client waits for a recall before its turn goes on without memory."""

_WRITERS = 4
_SESSIONS = 5
"""Of each writer."""
_CLOSED_EVERY = 6
"""Writes after which a session is closed, so that there is background work at all times."""
_PAUSE_SECONDS = 0.05
_RETRY_SECONDS = 0.5
_PATIENCE_SECONDS = 90.0


class Load:
    """The clients of one user, and what they saw.

    Args:
        client: Talks to the Service.
        user: Whose memory it is; nobody else may touch it.
    """

    def __init__(self, client: httpx.AsyncClient, user: str) -> None:
        self.accepted: list[str] = []
        """What is stored, as far as clients were told."""
        self._client = client
        self._user = user
        self._answers: Counter[str] = Counter()
        self._wrong: list[str] = []
        self._slowest_recall = 0.0
        self._latest: dict[str, str] = {}
        self._forgotten = 0
        self._news = asyncio.Condition()
        self._stopping = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run the clients; at the end each finishes what it is about, retries included."""
        running = [self._recall_on(), self._forget_on()]
        running += [self._write_on(writer) for writer in range(_WRITERS)]
        clients = [asyncio.create_task(each) for each in running]
        try:
            yield
            self._stopping.set()
            _, late = await asyncio.wait(clients, timeout=_PATIENCE_SECONDS)
            check(not late, f"clients still try again; they saw {self.summary()}")
            for client in clients:
                client.result()
        finally:
            for client in clients:
                client.cancel()

    async def progress(self, writes: int) -> None:
        """Wait until so many more writes are accepted."""
        target = len(self.accepted) + writes
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS), self._news:
                await self._news.wait_for(lambda: len(self.accepted) >= target)
        except TimeoutError:
            raise E2EError(f"no {writes} writes in time; clients saw {self.summary()}") from None

    def summary(self) -> str:
        """What was answered, by kind."""
        answers = ", ".join(f"{count} {kind}" for kind, count in sorted(self._answers.items()))
        return f"{answers}; slowest recall {self._slowest_recall:.1f} s"

    async def account(self, store: Store) -> str:
        """Hold what was promised against the database, once background work is done."""
        check(not self._wrong, f"{len(self._wrong)} wrong answers: {self._wrong[:3]}")
        slowest = f"a recall took {self._slowest_recall:.1f} s"
        check(self._slowest_recall <= RECALL_SECONDS, slowest)
        check(self._forgotten, "nothing was forgotten meanwhile")
        check(self._answers["recall ok"], "no recall was complete")
        await self._close_all()
        await store.settled()
        mine = f"WHERE principal = '{self._user}'"
        stored = Counter(row["content"] for row in store.rows(f"SELECT content FROM turns {mine}"))
        lost = [content for content in self.accepted if stored[content] == 0]
        doubled = [content for content, count in stored.items() if count > 1]
        check(not lost, f"{len(lost)} accepted writes are lost: {lost[:3]}")
        check(not doubled, f"{len(doubled)} writes are stored twice: {doubled[:3]}")
        other = stored.keys() - set(self.accepted)
        check(not other, f"{len(other)} turns are stored that were erased: {sorted(other)[:3]}")
        facts = {row["text"] for row in store.rows(f"SELECT text FROM facts {mine}")}
        expected = {as_statement("User", content) for content in self.accepted}
        check(facts == expected, f"{len(facts ^ expected)} facts are missing or of erased turns")
        return f"{len(self.accepted)} writes stored once and extracted; {self._forgotten} erasures"

    async def _write_on(self, writer: int) -> None:
        number = 0
        while not self._stopping.is_set():
            session = f"load-{writer}-{number % _SESSIONS}"
            content = f"Parcel {writer}-{number} was weighed."
            await self._write(session, content, strict=number % 2 == 1)
            self._latest[session] = content
            async with self._news:
                self.accepted.append(content)
                self._news.notify_all()
            number += 1
            if number % _CLOSED_EVERY == 0:
                await self._post("close", self._scope(session))
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _recall_on(self) -> None:
        while not self._stopping.is_set():
            await asyncio.sleep(_PAUSE_SECONDS)
            for session, latest in list(self._latest.items()):
                found = await self._recall(session)
                if found is None:  # no replica is ready, and nothing listens behind the Service
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                # Other turns may have come meanwhile; this one was there before the question.
                complete, window = not found["degraded"], found["short_term"]["window"]
                if complete and ["user", latest] not in window:
                    self._wrong.append(f"a complete recall lacks {latest!r}")

    async def _forget_on(self) -> None:
        number = 0
        while not self._stopping.is_set():
            session = f"forgotten-{number}"
            await self._write(session, f"Secret {number} was whispered.", strict=False)
            mode = {"failure_mode": "strict" if number % 2 else "soft"}
            await self._insist("forget", "forgotten", self._scope(session) | mode)
            self._forgotten += 1
            number += 1
            found = await self._recall(session)
            if found and found["short_term"]["window"]:
                self._wrong.append(f"{session} is remembered after it was forgotten")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _write(self, session: str, content: str, *, strict: bool) -> None:
        body = {
            "attribution": attribution(self._user, session),
            "turns": [{"role": "user", "content": content}],
            "failure_mode": "strict" if strict else "soft",
        }
        await self._insist("write", "accepted", body, {"Idempotency-Key": uuid4().hex})

    async def _insist(
        self,
        call: str,
        done: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send the same again until the answer says that it is done."""
        while True:
            answer = await self._post(call, body, headers)
            if answer and answer[done]:
                return
            await asyncio.sleep(_RETRY_SECONDS)

    async def _recall(self, session: str) -> dict[str, Any] | None:
        body = self._scope(session) | {"query": "Which parcel was weighed?"}
        began = time.monotonic()
        found = await self._post("recall", body, timeout=RECALL_SECONDS)
        if found is not None:
            self._slowest_recall = max(self._slowest_recall, time.monotonic() - began)
        return found

    async def _close_all(self) -> None:
        for session in self._latest:
            check(await self._post("close", self._scope(session)), f"{session} was not closed")

    def _scope(self, session: str) -> dict[str, Any]:
        return {"scope": {"level": "session", **attribution(self._user, session)}}

    async def _post(
        self,
        call: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = 10,  # noqa: ASYNC109 - the client's own, of one request
    ) -> dict[str, Any] | None:
        """Return what was answered; None where nobody was there, or none could answer."""
        path = "/v1/sessions/close" if call == "close" else f"/v1/{call}"
        try:
            answer = await self._client.post(path, json=body, headers=headers, timeout=timeout)
        except httpx.TransportError as error:
            refused = isinstance(error, httpx.ConnectError)
            self._answers[f"{call} {'refused' if refused else 'cut off'}"] += 1
            if call == "recall" and not refused:
                self._wrong.append(f"a recall got no answer: {type(error).__name__}")
            return None
        if answer.status_code == 503 and call != "recall":
            self._answers[f"{call} 503"] += 1
            if not answer.headers.get("retry-after", "").isdigit():
                self._wrong.append(f"{call}: 503 without Retry-After")
            return None
        if answer.status_code not in (200, 202):
            self._wrong.append(f"{call}: {answer.status_code} {answer.text[:200]}")
            return None
        found = answer.json()
        self._answers[f"{call} {'degraded' if found.get('degraded') else 'ok'}"] += 1
        return found
