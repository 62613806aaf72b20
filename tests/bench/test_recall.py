"""The recall benchmark's own rules: what counts as found, and what a missed floor does."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from bench.recall import __main__ as command
from bench.recall import playing, report
from bench.recall.floors import check
from bench.recall.locomo import Conversation, Finder, Question, conversations
from bench.recall.measures import Answer, Row, row, rows_by_category


def _turn(id_: str, speaker: str, text: str, **more: str) -> dict[str, str]:
    return {"dia_id": id_, "speaker": speaker, "text": text, **more}


def _asked(question: str, category: int, *evidence: str) -> dict[str, Any]:
    return {"question": question, "answer": "?", "category": category, "evidence": evidence}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    first: Mapping[str, Any] = {
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bob",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                _turn("D1:1", "Ann", "Hello!"),
                _turn("D1:2", "Bob", "", blip_caption="a red kayak"),
            ],
            "session_2_date_time": "12:09 am on 13 September, 2023",
            "session_2": [
                _turn("D2:1", "Bob", "Hello!"),
                _turn("D2:2", "Ann", "I sold it. Good price!"),
            ],
        },
        "qa": [
            _asked("What did Bob show?", 4, "D1:2"),
            _asked("Who greets?", 1, "D1:1; D2:1"),
            _asked("When was it sold?", 2, "D2:02", "D", "D:9:9", "D7:1"),
            _asked("Nowhere?", 5, "D9:9"),
            _asked("Without?", 5),
        ],
    }
    second = {
        "conversation": {
            "speaker_a": "Cid",
            "speaker_b": "Dan",
            "session_1_date_time": "9:00 am on 1 June, 2023",
            "session_1": [_turn("D1:1", "Cid", "Bye."), _turn("D1:2", "Dan", "Bye then.")],
        },
        "qa": [_asked("Who leaves?", 3, "D1:2")],
    }
    file = tmp_path / "locomo.json"
    file.write_text(json.dumps([first, second]))
    return file


@pytest.fixture
def read(path: Path) -> list[Conversation]:
    return conversations(path)


def test_sessions_have_their_date_and_turns_their_picture(read: list[Conversation]):
    first, second = read[0].sessions
    assert (first.id, first.said_at.isoformat()) == ("locomo-1-1", "2023-05-08T13:56:00+00:00")
    assert second.said_at.isoformat() == "2023-09-13T00:09:00+00:00"
    assert first.turns[1].line == "Bob: Look at this. [shows a red kayak]"


def test_evidence_is_read_in_all_its_spellings_and_must_be_among_the_turns(
    read: list[Conversation],
):
    assert [(each.category, sorted(each.evidence)) for each in read[0].questions] == [
        ("single-hop", ["locomo-1/D1:2"]),
        ("multi-hop", ["locomo-1/D1:1", "locomo-1/D2:1"]),
        ("temporal", ["locomo-1/D2:2"]),
    ]


def test_a_text_stands_for_each_turn_that_has_it(read: list[Conversation]):
    finder = Finder(read[0].sessions)
    assert finder.turns_of("Hello!") == {"locomo-1/D1:1", "locomo-1/D2:1"}
    assert finder.turns_of("Bob: Hello!") == {"locomo-1/D2:1"}
    assert finder.turns_of("hello") == set()
    assert finder.turns_holding("Good price") == {"locomo-1/D2:2"}
    assert finder.turns_holding("") == set()


def _answer(
    evidence: str, *found: str, seconds: float = 0.01, category: str = "temporal"
) -> Answer:
    question = Question("?", category, frozenset(evidence))
    return Answer(question, [frozenset(turns) for turns in found], seconds)


def test_figures_of_a_question_count_its_evidence_among_the_first_results():
    answer = _answer("ab", *"xxxxa", *"x" * 5, "b")
    assert (answer.recall_at(10), answer.recall_at(20)) == (0.5, 1.0)
    assert answer.reciprocal_rank == 0.2
    nothing = _answer("a", *"x" * 20, "a")
    assert (nothing.recall_at(20), nothing.reciprocal_rank) == (0.0, 0.0)
    assert _answer("ab", "ab").recall_at(10) == 1.0
    assert _answer("a").recall_at(20) == 0.0


def test_rows_are_means_over_questions_and_percentiles_of_latencies():
    answers = [_answer("ab", "a", seconds=0.001), _answer("c", "x", seconds=0.003)]
    answers.append(_answer("d", "x", "d", seconds=0.002, category="multi-hop"))
    of_category, temporal, all_ = rows_by_category("ours", answers)
    assert (of_category.category, of_category.questions) == ("multi-hop", 1)
    assert temporal == Row("recall_quality", "ours", "temporal", 2, 0.25, 0.25, 0.5, 0.5, 1.0, 3.0)
    assert (all_.category, all_.recall_at_20, all_.mrr) == ("all", 0.5, 0.5)


GOOD = Row("recall_quality", "ours", "all", 9, 0.8, 0.87, 0.92, 0.61, 5, 9)
FAST = replace(GOOD, category=playing.EVERYBODY, recall_at_20=0, p95_ms=30)


@pytest.mark.parametrize(
    ("good", "fast", "missed"),
    [
        (GOOD, FAST, []),
        (replace(GOOD, recall_at_20=0.8699), FAST, ["recall@20: 0.8699 (at least 0.87)"]),
        (replace(GOOD, hit_at_20=0.9199), FAST, ["hit@20: 0.9199 (at least 0.92)"]),
        (replace(GOOD, mrr=0.6099), FAST, ["MRR: 0.6099 (at least 0.61)"]),
        (
            GOOD,
            replace(FAST, p95_ms=30.1),
            ["p95 in ms for one owner's rows: 30.1 (at most 30)"],
        ),
    ],
)
def test_a_floor_is_met_at_its_bound_and_missed_beyond(good: Row, fast: Row, missed: list[str]):
    peer = replace(good, subject="peer", recall_at_20=1.0, hit_at_20=1.0, mrr=1.0)
    outcomes = check([good, fast, peer])
    assert [outcome.sentence for outcome in outcomes if not outcome.met] == missed


def test_one_user_gets_the_first_turns_and_the_questions_that_these_answer(
    read: list[Conversation],
):
    sessions, questions = playing._everybody(read, 5)
    assert [len(session.turns) for session in sessions] == [2, 2, 1]
    assert [question.text for question in questions] == [
        "What did Bob show?",
        "Who greets?",
        "When was it sold?",
    ]


def test_an_extracted_fact_stands_for_the_turn_that_holds_its_sentence(read: list[Conversation]):
    finder = Finder(read[0].sessions)
    assert playing._source(finder, "Ann said that Good price") == {"locomo-1/D2:2"}
    assert playing._source(finder, "Ann mentioned a price") == set()


@pytest.fixture
def cli() -> typer.Typer:
    app = typer.Typer()
    app.command()(command.main)
    return app


def test_without_the_data_there_is_nothing_to_do(
    cli: typer.Typer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("KAOS_LOCOMO", str(tmp_path / "absent.json"))
    done = CliRunner().invoke(cli)
    assert done.exit_code == 0
    assert "absent.json" in done.output.replace("\n", "")


@pytest.mark.parametrize(("mrr", "code"), [(0.61, 0), (0.5, 1)])
def test_a_missed_floor_is_an_exit_code_and_figures_are_saved(
    cli: typer.Typer, monkeypatch: pytest.MonkeyPatch, path: Path, mrr: float, code: int
):
    rows = [replace(GOOD, mrr=mrr), replace(GOOD, subject="mem0", mrr=0.1), FAST]

    async def measured(*_: object) -> list[Row]:
        return rows

    folder = path.parent
    (folder / "README.md").write_text("a\n<!-- recall:begin -->\nold\n<!-- recall:end -->\nz\n")
    monkeypatch.setenv("KAOS_LOCOMO", str(path))
    monkeypatch.setattr("sys.argv", ["recall", "--save"])
    monkeypatch.setattr(command, "_measure", measured)
    monkeypatch.setattr(report.report, "FOLDER", folder)
    done = CliRunner().invoke(cli, ["--save"])
    assert done.exit_code == code, done.output
    saved = json.loads((folder / "recall.json").read_text())
    assert [(each["subject"], each["category"], each["mrr"]) for each in saved] == [
        ("ours", "all", mrr),
        ("mem0", "all", 0.1),
        ("ours", "everybody", 0.61),
    ]
    readme = (folder / "README.md").read_text()
    assert readme.startswith("a\n<!-- recall:begin -->\nMade by `python -m bench.recall --save`")
    assert "old" not in readme
    assert "| all | mem0 | 9 | 0.800 | 0.870 | 0.920 | 0.100 | 5.0 | 9.0 |" in readme
    assert ">0.870</text>" in (folder / "recall.svg").read_text()


def test_a_row_of_no_category_of_the_data_set_is_not_made():
    assert [each.category for each in rows_by_category("ours", [_answer("a", "a")])] == [
        "temporal",
        "all",
    ]
    assert row("ours", "extracted", [_answer("a", "a")]).recall_at_10 == 1.0
