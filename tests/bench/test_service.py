"""The service benchmark's own rules: what is asked, what is saved, and what must hold."""

import inspect
import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench import bulk, report
from bench.expectations import EXPECTATIONS, OURS, Better, Within
from bench.known_facts import TOP, Question, Stage, Tenant, stages, topic_texts, topic_vectors
from bench.plan import FULL, QUICK, Plan
from bench.published import NAME
from bench.rounds import Figures, Key, Results
from kaos_dev.embedded_postgres import EmbeddedPostgres
from kaos_memory.engine.cached_embedder import CachedEmbedder
from kaos_memory.tiers import lexical

MEASURES = {"write", "window_recall", "full_recall", "forget_user", "ready", "rss_mb"}
MEM0_THRESHOLD = 0.1
INDEXES = "SELECT count(*) FROM pg_indexes WHERE indexdef LIKE '%hnsw%'"

SAVED: list[dict[str, Any]] = json.loads((report.FOLDER / "service.json").read_text())


def _stages(plan: Plan) -> list[Stage]:
    return stages(plan.stores, plan.forgotten, plan.erasing_rounds)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _stems(text: str) -> list[int]:
    return np.frombuffer(b"".join(map(lexical.terms, text.split())), "<i4").tolist()


def test_saved_rows_all_have_the_same_keys_in_the_same_order():
    results = Results()
    key = Key("write", OURS, 1)
    results.add(key, Figures(1.0, 2.0, 3.0))
    for row in SAVED:
        assert list(row) == list(results.row(key))


def test_saved_rows_have_the_agreed_names():
    assert {row["measure"] for row in SAVED} == MEASURES
    assert {row["subject"] for row in SAVED} == {OURS, NAME, "floor"}


def test_a_saved_row_has_the_figures_of_its_measure():
    for row in SAVED:
        timed, erases = row["measure"] != "rss_mb", row["measure"] == "forget_user"
        recalls = row["measure"] == "full_recall" and row["subject"] != "floor"
        has = {
            name
            for name in ("p50_ms", "p95_ms", "rps", "recall_at_10", "value", "facts_left")
            if row[name] is not None
        }
        many = row["clients"] is not None and not erases
        wanted = {"p50_ms", "p95_ms"} if timed else {"value"}
        wanted |= {"rps"} if many else set()
        wanted |= {"recall_at_10"} if recalls else set()
        wanted |= {"facts_left"} if erases else set()
        assert has == wanted, row
        assert not timed or 0 < row["p50_ms"] <= row["p95_ms"], row


def test_no_two_saved_rows_are_about_the_same():
    keys = ("measure", "subject", "clients", "facts", "window_rows")
    counts = Counter(tuple(row[key] for key in keys) for row in SAVED)
    assert set(counts.values()) == {1}


@pytest.mark.parametrize("expectation", EXPECTATIONS, ids=lambda each: each.text)
def test_an_expectation_names_a_saved_row(expectation: Better | Within):
    key = expectation.key
    wanted = [key, replace(key, subject=NAME)] if isinstance(expectation, Better) else [key]
    for each in wanted:
        [row] = [row for row in SAVED if all(row[name] == it for name, it in vars(each).items())]
        if isinstance(expectation, Within):
            assert row[expectation.field] is not None


def test_facts_and_questions_have_no_word_in_common_and_facts_have_one_shape():
    facts = Tenant(3, 500).texts
    for words in (_words, _stems):
        assert not {*words(" ".join(facts))} & {*words(" ".join(topic_texts()))}
    assert len(set(facts)) == 500
    assert len({(len(text), lexical.words(text), lexical.cues(text)) for text in facts}) == 1


@pytest.mark.parametrize("plan", [FULL, QUICK], ids=["full", "quick"])
def test_a_store_grows_to_its_sizes_with_the_users_who_are_erased(plan: Plan):
    grown = _stages(plan)
    total = 0
    for stage in grown:
        total += sum(tenant.count for tenant in stage.added)
        assert total == stage.facts
    numbers = [tenant.number for stage in grown for tenant in stage.added]
    assert len(numbers) == len(set(numbers))
    assert list(grown[-1].forgotten) == list(plan.forgotten)
    assert all(len(users) == plan.erasing_rounds for users in grown[-1].forgotten.values())


def test_more_users_to_erase_than_facts_are_refused():
    with pytest.raises(ValueError, match="no room"):
        stages([1_000, 2_000], [1_001], 1)


@pytest.mark.parametrize("stage", _stages(FULL), ids=lambda stage: f"{stage.facts}")
def test_no_question_comes_back_while_its_embedding_is_remembered(stage: Stage):
    remembered = inspect.signature(CachedEmbedder).parameters["entries"].default
    topics = [question.topic for question in stage.questions]
    assert len(topics) == len(set(topics)) > remembered
    erased = {tenant.number for users in stage.forgotten.values() for tenant in users}
    assert not erased & {question.tenant.number for question in stage.questions}


def test_ten_facts_answer_a_question_of_the_smallest_tenant():
    smallest = min(_stages(FULL)[-1].asked, key=lambda tenant: tenant.count)
    similarities = smallest.vectors() @ topic_vectors()[smallest.topics].T
    assert np.partition(similarities, -TOP, axis=0)[-TOP].min() > MEM0_THRESHOLD


def test_recall_at_10_counts_the_most_similar_facts_of_the_tenant():
    tenant = Tenant(5, 200)
    question = Question(tenant, tenant.topics[0])
    order = np.argsort(-(tenant.vectors() @ topic_vectors()[question.topic]))
    best = [tenant.texts[at] for at in order[:TOP]]
    assert question.recall_at_10(best) == 1.0
    assert question.recall_at_10([*best[:4], tenant.texts[order[100]]]) == 0.4
    assert question.recall_at_10([best[0]] * TOP) == 0.1


def test_a_ratio_is_the_median_over_rounds():
    key = Key("write", OURS, 32)
    expectation = Better(
        "faster", key, 2.0, lambda ours, theirs: (ours.rps or 0) / (theirs.rps or 1)
    )
    results = Results()
    assert expectation.check(results) is None
    for ours, theirs in ((100, 100), (300, 100), (210, 100)):
        results.add(key, Figures(rps=ours))
        results.add(replace(key, subject=NAME), Figures(rps=theirs))
    outcome = expectation.check(results)
    assert outcome is not None
    assert outcome.met
    assert "x2.10" in outcome.sentence
    results.add(key, Figures(rps=10))
    results.add(replace(key, subject=NAME), Figures(rps=100))
    missed = expectation.check(results)
    assert missed is not None
    assert not missed.met


def test_a_bound_looks_at_the_row():
    key = Key("ready", OURS)
    results = Results()
    expectation = Within("ready soon", key, "p50_ms", most=1_500)
    assert expectation.check(results) is None
    for took in (900.0, 1_400.0, 9_000.0):
        results.add(key, Figures(p50_ms=took))
    outcome = expectation.check(results)
    assert outcome is not None
    assert outcome.met
    assert results.row(key)["p95_ms"] == 9_000.0
    missed = replace(expectation, most=1_000).check(results)
    assert missed is not None
    assert not missed.met


async def test_a_vector_index_of_a_partitioned_table_is_there_again_after_rows_were_copied():
    with EmbeddedPostgres(fsync=False) as postgres:
        postgres.create_database("filled")
        async with bulk.connected(postgres.dsn("filled")) as admin:
            await admin.execute(
                "CREATE TABLE facts (id int, near halfvec(2), far vector(2)) PARTITION BY HASH (id)"
            )
            await admin.execute(
                "CREATE TABLE facts_0 PARTITION OF facts FOR VALUES WITH (MODULUS 1, REMAINDER 0)"
            )
            await admin.execute(
                "CREATE INDEX nearest ON facts USING hnsw (near halfvec_cosine_ops)"
            )
            rows = np.array([[1, 0], [0.5, -2]], dtype=np.float32)
            async with bulk.vector_indexes_rebuilt(admin, "facts"):
                assert await admin.fetchval(INDEXES) == 0
                records = zip((1, 2), bulk.half_vectors(rows), bulk.vectors(rows), strict=True)
                await admin.copy_records_to_table("facts", records=records)
            assert await admin.fetchval(INDEXES) == 2
            read = await admin.fetch("SELECT near::text, far::text FROM facts ORDER BY id")
            assert [tuple(row) for row in read] == [("[1,0]",) * 2, ("[0.5,-2]",) * 2]
