"""The parts of the benchmark: each writes conversations, asks questions, and returns rows."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from rich.progress import Progress

from bench.recall.locomo import Conversation, Finder, Question, Session
from bench.recall.measures import Answer, Row, row, rows_by_category
from bench.recall.scenes import scene
from bench.recall.subjects import Found, Subject

EVERYBODY = "everybody"
EVERYBODY_FIRST = "everybody, first asked"
EXTRACTED = "extracted"

Asked = TypeVar("Asked")

_STATED = " said that "

Attribute = Callable[[str], frozenset[str]]
"""From the text of a result to the ids of the turns that it is or comes from."""


async def by_conversation(given: Sequence[Conversation], progress: Progress) -> list[Row]:
    """Each conversation is one user's, asked about with nobody else's turns in reach."""
    answers: defaultdict[str, list[Answer]] = defaultdict(list)
    async with scene() as stage:
        subjects = await stage.everyone()
        await _remember(subjects, {each.name: each.sessions for each in given}, progress)
        asked = [(each, question) for each in given for question in each.questions]
        finders = {each.name: Finder(each.sessions) for each in given}
        for number, (each, question) in enumerate(_shown(asked, progress)):
            for subject in _turned(subjects, number):
                found = await subject.search(each.name, question.text)
                found_turns = finders[each.name].turns_of
                answers[subject.name].append(_answer(question, found, found_turns))
    return [
        made
        for subject in subjects
        for made in rows_by_category(subject.name, answers[subject.name])
    ]


async def for_everybody(
    given: Sequence[Conversation], turns: int, questions: int, progress: Progress
) -> list[Row]:
    """One user with the turns of several conversations: each question is asked twice."""
    sessions, asked = _everybody(given, turns)
    step = max(1, len(asked) // questions)
    finder = Finder(sessions)
    first: defaultdict[str, list[Answer]] = defaultdict(list)
    again: defaultdict[str, list[Answer]] = defaultdict(list)
    async with scene() as stage:
        subjects = await stage.everyone()
        await _remember(subjects, {EVERYBODY: sessions}, progress)
        for number, question in enumerate(_shown(asked[::step], progress)):
            for subject in _turned(subjects, number):
                for answers in (first, again):
                    found = await subject.search(EVERYBODY, question.text)
                    answers[subject.name].append(_answer(question, found, finder.turns_of))
    return [
        row(subject.name, category, answers[subject.name])
        for category, answers in ((EVERYBODY, again), (EVERYBODY_FIRST, first))
        for subject in subjects
    ]


async def on_extracted_facts(given: Conversation, progress: Progress) -> list[Row]:
    """Our service on facts that a model made of the turns, one for each of their sentences."""
    finder = Finder(given.sessions)
    answers: list[Answer] = []
    async with scene() as stage:
        ours = await stage.ours(infer=True)
        await _remember([ours], {given.name: given.sessions}, progress)
        for question in _shown(given.questions, progress):
            found = await ours.search(given.name, question.text)
            answers.append(_answer(question, found, lambda fact: _source(finder, fact)))
    return [row(ours.name, EXTRACTED, answers)]


async def _remember(
    subjects: Sequence[Subject], said: Mapping[str, Sequence[Session]], progress: Progress
) -> None:
    """Let all write side by side: nothing is timed here."""
    shown = progress.add_task("writing", total=len(subjects) * len(said))

    async def write(subject: Subject) -> None:
        for principal, sessions in said.items():
            await subject.remember(principal, sessions)
            progress.advance(shown)

    async with asyncio.TaskGroup() as together:
        for subject in subjects:
            together.create_task(write(subject))
    progress.remove_task(shown)


def _everybody(given: Sequence[Conversation], turns: int) -> tuple[list[Session], list[Question]]:
    """The first turns over all conversations, and the questions that they answer in full."""
    sessions: list[Session] = []
    left = turns
    for session in (session for each in given for session in each.sessions):
        kept = list(islice(session.turns, left))
        if kept:
            sessions.append(Session(session.id, session.said_at, kept))
        left -= len(kept)
    known = {turn.id for session in sessions for turn in session.turns}
    questions = [asked for each in given for asked in each.questions if asked.evidence <= known]
    return sessions, questions


def _answer(question: Question, found: Found, turns_of: Attribute) -> Answer:
    return Answer(question, [turns_of(text) for text in found.texts], found.seconds)


def _source(finder: Finder, fact: str) -> frozenset[str]:
    """The model server's facts are `Name said that <sentence>`, the sentence word by word."""
    _, _, sentence = fact.partition(_STATED)
    return finder.turns_holding(sentence)


def _shown(given: Sequence[Asked], progress: Progress) -> Iterable[Asked]:
    return progress.track(given, description="asking")


def _turned(subjects: Sequence[Subject], number: int) -> Sequence[Subject]:
    """Nobody always comes first."""
    first = number % len(subjects)
    return [*subjects[first:], *subjects[:first]]
