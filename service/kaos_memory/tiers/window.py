"""The rules of the conversational tiers: when a window is compacted, and what a recall shows.

A session's turns are numbered from 1. Four marks move through them, never backwards:
`evicted_through` (left the window), `folded_through` (left the conversation: a digest covers
them, or the medium tier is off), `extracted_through` (facts were taken from them) and
`closed_through` (to be extracted although they are in the window still: the session was closed
or idle). So a turn is in the window, pending or folded by comparison alone, and no row is
rewritten to say so. A turn's row goes once both `folded_through` and `extracted_through` have
passed it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kaos_memory.tiers.memory import Conversation, Turn

MAX_BATCH_TOKENS = 8_000
"""Tokens of turns that one model call of background work reads, but for its first turn."""


@dataclass(frozen=True)
class Compaction:
    """When and how far a window is compacted, and which tiers want what leaves it.

    Holds 0 < target < trigger <= budget; the settings see to that.
    """

    trigger: int
    """Compaction starts when the window's tokens exceed this."""
    target: int
    """Tokens that it leaves."""
    hard_event_cap: int
    """It also starts when the window's turns exceed this, and then leaves half of it."""
    fold: bool
    """Whether turns wait for a digest when they leave the window."""
    extract: bool
    """Whether facts are taken from them."""

    def due(self, *, tokens: int, turns: int) -> bool:
        """Whether a window of this size is to be compacted."""
        return tokens > self.trigger or turns > self.hard_event_cap

    def kept(self, newest_first: Sequence[int]) -> int:
        """How many of the newest turns stay, given their tokens. The last turn always does."""
        most = self.hard_event_cap
        if len(newest_first) > self.hard_event_cap:
            most = max(1, self.hard_event_cap // 2)
        return max(1, min(most, _within(newest_first, self.target)))


@dataclass(frozen=True)
class Marks:
    """Where a session's marks stand."""

    evicted_through: int = 0
    folded_through: int = 0
    extracted_through: int = 0
    closed_through: int = 0

    def evict(self, through: int, compaction: Compaction) -> "Marks":
        """The marks after eviction; a tier that is off has nothing to wait for."""
        extracted = self.extracted_through
        return replace(
            self,
            evicted_through=through,
            folded_through=self.folded_through if compaction.fold else through,
            extracted_through=extracted if compaction.extract else max(extracted, through),
        )

    @property
    def extract_through(self) -> int:
        """The last turn that is to be extracted by now."""
        return max(self.evicted_through, self.closed_through)

    @property
    def gone_through(self) -> int:
        """The last turn that no tier needs any more."""
        return min(self.folded_through, self.extracted_through)


def batch(turns: Sequence[Turn], most_tokens: int = MAX_BATCH_TOKENS) -> list[Turn]:
    """The first turns that one model call reads: alike in `infer`, at least one."""
    alike = list(_while_alike(turns))
    return alike[: max(1, _within([turn.tokens for turn in alike], most_tokens))]


def merged(conversations: Sequence[Conversation], budget: int) -> list[tuple[str, str]]:
    """The newest turns of all conversations, oldest first, as (role, content) within a budget."""
    turns = [turn for conversation in conversations for turn in conversation.turns]
    turns.sort(key=lambda turn: (turn.created_at, turn.position))
    kept = max(1, _within([turn.tokens for turn in reversed(turns)], budget))
    return [(turn.role, turn.content) for turn in turns[-kept:]]


def summary(conversations: Sequence[Conversation]) -> str:
    """The digest of one conversation, or those of several, each under its agent's name."""
    told = [conversation for conversation in conversations if conversation.digest]
    if len(conversations) == 1:
        return told[0].digest if told else ""
    return "\n\n".join(f"{conversation.agent}:\n{conversation.digest}" for conversation in told)


def _while_alike(turns: Sequence[Turn]) -> Iterable[Turn]:
    for turn in turns:
        if turn.infer != turns[0].infer:
            return
        yield turn


def _within(tokens: Iterable[int], most: int) -> int:
    """How many leading entries sum to at most `most`."""
    total = count = 0
    for size in tokens:
        total += size
        if total > most:
            break
        count += 1
    return count
