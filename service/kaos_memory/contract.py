"""The wire contract: requests and responses of the memory service, with every bound.

Names, shapes and levels are those of the KAOS memory contract, so that its published client
works unchanged. Levels nest: session < agent < user; `store` is for admins.
"""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from kaos_memory.settings import MAX_TOP_K, FailureMode

MAX_ID_CHARS = 256
MAX_TURNS = 100
"""Turns in one write."""
MAX_CONTENT_CHARS = 200_000
"""Characters in one turn."""
MAX_QUERY_CHARS = 16_000
MAX_ID_BYTES = 768
"""Three ids and a hash must fit into one entry of an index."""
MAX_BODY_BYTES = 1_048_576
"""Bytes of one request's body; more is 413."""
MAX_PAGE = 1_000
"""Facts in one page of a list."""
MAX_PAGE_BYTES = 4_194_304
"""Bytes of text after which a page ends early."""
MAX_RECALL_BYTES = 1_048_576
"""Bytes of text after which a recall's facts end early; the first of them is always there."""
MAX_TOKEN_BUDGET = 1_000_000
_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)


class ScopeLevel(StrEnum):
    """How far a read or an erasure reaches."""

    SESSION = "session"
    AGENT = "agent"
    USER = "user"
    STORE = "store"


class MemoryTier(StrEnum):
    """A part of a recall that a caller may ask for."""

    SHORT_TERM = "short_term"
    MEDIUM_TERM = "medium_term"
    LONG_TERM = "long_term"


def _blank_is_absent(value: object) -> object:
    return None if isinstance(value, str) and not value.strip() else value


def _plain_id(value: str) -> str:
    if not value.isprintable() or " " in value or "*" in value:
        raise ValueError("must not hold white space, control characters or '*'")
    if len(value.encode()) > MAX_ID_BYTES:
        raise ValueError(f"must have at most {MAX_ID_BYTES} bytes in UTF-8")
    return value


def _storable(value: str) -> str:
    if "\x00" in value:
        raise ValueError("must not hold the character NUL; remove it")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must not hold lone surrogates; send valid Unicode text") from None
    return value


def _none_unless_uuid(value: object) -> UUID | None:
    try:
        return UUID(str(value))
    except ValueError:
        return None


def _a_past_date(value: datetime) -> datetime:
    if not _EARLIEST <= value <= datetime.now(UTC) + timedelta(minutes=5):
        raise ValueError("must lie between 1900 and now")
    return value


Id = Annotated[
    Annotated[str, StringConstraints(max_length=MAX_ID_CHARS), AfterValidator(_plain_id)] | None,
    BeforeValidator(_blank_is_absent),
]
"""An identity or session id; blank is the same as absent."""
RecordId = Annotated[UUID | None, BeforeValidator(_none_unless_uuid)]
"""The id of a record in a path. What is no UUID is nobody's id: None."""
Text = Annotated[str, AfterValidator(_storable)]


class Message(BaseModel):
    """Base of all bodies: unknown fields are refused and input is not echoed."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class Attribution(Message):
    """Who wrote: every identity that the request was verified with."""

    principal: Id = None
    agent_client_id: Id = None
    session_id: Id = None


class Scope(Message):
    """Whose memory a read or an erasure is about: a level, and the identities it needs."""

    level: ScopeLevel
    principal: Id = None
    agent_client_id: Id = None
    session_id: Id = None

    def is_complete(self) -> bool:
        """Whether the identity that the level is about is named."""
        needed = {
            ScopeLevel.SESSION: self.session_id,
            ScopeLevel.AGENT: self.agent_client_id,
            ScopeLevel.USER: self.principal,
        }
        return self.level is ScopeLevel.STORE or needed[self.level] is not None


Include = Annotated[list[MemoryTier], Field(max_length=len(MemoryTier))]
TokenBudget = Annotated[int, Field(ge=1, le=MAX_TOKEN_BUDGET)]


def _all_tiers() -> list[MemoryTier]:
    return list(MemoryTier)


class RecallRequest(Message):
    """Ask for the context of a new turn."""

    scope: Scope
    query: Annotated[Text, Field(max_length=MAX_QUERY_CHARS)]
    top_k: Annotated[int, Field(ge=1, le=MAX_TOP_K)] | None = None
    include: Include = Field(default_factory=_all_tiers)
    short_term_token_budget: TokenBudget | None = None


class ListRequest(Message):
    """Ask for everything at a scope, page by page."""

    scope: Scope
    include: Include = Field(default_factory=_all_tiers)
    short_term_token_budget: TokenBudget | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = MAX_PAGE
    cursor: Annotated[str, StringConstraints(max_length=200)] | None = None


class Turn(Message):
    """One message of a conversation."""

    role: Annotated[Text, StringConstraints(min_length=1, max_length=64)]
    content: Annotated[Text, StringConstraints(max_length=MAX_CONTENT_CHARS)]
    said_at: Annotated[AwareDatetime, AfterValidator(_a_past_date)] | None = None
    """When it was said, with its time zone; omitted: now. For conversations that are imported."""


class WriteRequest(Message):
    """Store turns: `turns`, or one as `role` and `content`, or both (the single one first)."""

    attribution: Attribution
    turns: Annotated[list[Turn], Field(max_length=MAX_TURNS)] = Field(default_factory=list[Turn])
    role: Annotated[Text, StringConstraints(min_length=1, max_length=64)] | None = None
    content: Annotated[Text, StringConstraints(max_length=MAX_CONTENT_CHARS)] | None = None
    infer: bool = True
    failure_mode: FailureMode | None = None

    @model_validator(mode="after")
    def _some_turns(self) -> Self:
        if (self.role is None) != (self.content is None):
            raise ValueError("role and content go together; give both or neither")
        if not self.turns and self.role is None:
            raise ValueError("turns must hold at least one turn, or role and content be given")
        return self

    def all_turns(self) -> list[Turn]:
        """The turns to store, in order."""
        if self.role is None or self.content is None:
            return self.turns
        return [Turn(role=self.role, content=self.content), *self.turns]


class WriteResponse(Message):
    """`accepted`: stored. `scheduled`: background work was due with it."""

    accepted: bool
    scheduled: bool = False
    degraded: bool = False


class CloseRequest(Message):
    """Have a session's turns extracted now, although they stay in the window."""

    scope: Scope


class CloseResponse(Message):
    """`scheduled`: there were turns to extract, and work is due for them."""

    scheduled: bool


class ForgetRequest(Message):
    """Erase everything at a scope, in every tier."""

    scope: Scope
    failure_mode: FailureMode | None = None
    dry_run: bool = False


class ErasureLevel(StrEnum):
    """How far an erasure reached: as far as a scope, or to one fact."""

    SESSION = "session"
    AGENT = "agent"
    USER = "user"
    STORE = "store"
    FACT = "fact"


Count = Annotated[int, Field(ge=0)]
KeyedHash = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
"""A name or a text as the store remembers it: hex of its HMAC with the store's own key."""


class Erasure(Message):
    """The receipt of an erasure, or the plan of one: counts and keyed hashes, no content.

    As JSON it is also a line of an export, which can be replayed after a restore.
    """

    id: UUID | None = None
    """None for a plan."""
    level: ErasureLevel
    turns: Count
    digests: Count
    facts: Count
    sessions: Count
    residue: Count
    """Rows that a second scan still found; 0 where `forgotten` is true."""
    erased_at: AwareDatetime | None = None
    """Later than all that was erased, earlier than all that came after it. None for a plan."""
    principal_hash: KeyedHash | None = None
    """Whose memory; None: everybody's."""
    agent_hash: KeyedHash | None = None
    """What which agent remembered; None: any."""
    session_hash: KeyedHash | None = None
    """What was said in which session; None: in any."""
    fact_hash: KeyedHash | None = None
    """Which fact, by its text; None: the level is another."""
    erased_by: KeyedHash | None = None
    """The agent that asked, hashed as `agent_hash` is; None: an admin or a person."""
    key_id: Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")] | None = None
    """Which store's key made the hashes. None for a plan."""


class FactRequest(Message):
    """Which fact, and the scope that it is looked for in.

    Without a level: an agent's own (`agent`), and for everybody else the whole `store`.
    """

    fact_id: RecordId
    level: ScopeLevel | None = None
    principal: Id = None
    agent_client_id: Id = None
    session_id: Id = None


class FactResponse(Message):
    """A fact as recalls show it; its metadata also say where it comes from."""

    id: str
    memory: str
    hash: str
    metadata: dict[str, Any]
    """`kaos_run` (session), `first_turn` and `last_turn` (positions in it, from 1), `said_at`,
    `model`, `prompt_hash`."""
    user_id: str | None = None
    agent_id: str
    created_at: str
    updated_at: str


class ErasureRequest(Message):
    """Which receipt."""

    erasure_id: RecordId


class ForgetResponse(Message):
    """`forgotten` is true only after a second scan found nothing."""

    forgotten: bool
    degraded: bool = False
    receipt: Erasure | None = None


class ShortTermContext(Message):
    """The verbatim turns, oldest first, as (role, content)."""

    window: list[tuple[str, str]] = Field(default_factory=list[tuple[str, str]])


class MediumTermContext(Message):
    """The latest digest."""

    summary: str = ""


class LongTermContext(Message):
    """Facts, and the same as a block of text for a prompt."""

    facts: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    block: str = ""


class RecallResponse(Message):
    """The tiers that were asked for; others are absent."""

    long_term: LongTermContext | None = None
    medium_term: MediumTermContext | None = None
    short_term: ShortTermContext | None = None
    degraded: bool = False


class ListResponse(RecallResponse):
    """A page; `next_cursor` is absent on the last one."""

    next_cursor: str | None = None
