"""Tests of Table 1's topic models: one part is run, and tables and verdicts follow made-up numbers."""

import json

import numpy as np
import pytest

from strang import lda
from strang.paper import topics
from strang.paper.figure import FULL, NOT_REPRODUCED, QUICK, REPRODUCED, UNDER_READING

OLD, NEW = "SGHMC-E, old momentum", "SGHMC-E, new momentum"


def test_a_step_size_that_is_too_large_breaks_only_its_own_chain(monkeypatch):
    rng = np.random.default_rng(0)
    corpus = lda.from_matrix(rng.poisson(0.5, (400, 30)))
    monkeypatch.setattr(topics, "corpus_of", lambda path: (corpus, None))
    settings = {"topics": 3, "friction": None, "steps": 20, "held_out": 40, "corpus": None, "fingerprint": ""}
    rows = topics.try_steps(method="SGLD", sizes=[1e-3, 1e9], **settings)
    json.dumps(rows, allow_nan=False)
    assert [topics.is_broken(row) for row in rows] == [False, True]
    assert [x for x, _ in rows[0]["curve"]] == [100 * step for step in range(1, 21)]
    assert rows[0]["last"] == rows[0]["curve"][-1][1] > 1
    assert rows[0]["perplexity"] < rows[0]["last"] * 1.05  # averaged before the logarithm


def row(size, perplexity, heat=None):
    curve = [[100, perplexity and 2 * perplexity], [200, perplexity]]
    return {"step_size": size, "curve": curve, "last": perplexity, "perplexity": perplexity, "temperature": heat}


def results(**changes):
    """Results of a quick reproduction in which the splitting has perplexity 90, by method and step size."""
    both = [row(0.01, 95.0, 2.0), row(0.02, 90.0, 3.0), row(0.04, None, 1e9)]
    by_label = dict.fromkeys(topics.METHODS, both) | {"SGLD": [row(1e-4, 120.0)], "SGRLD": [row(1.0, 75.0)]}
    by_label |= {OLD: [row(0.01, 110.0, 9.0), row(0.02, 50.0, 1e7), row(0.04, None)]}
    by_label |= {topics.SGLD_ON_SGHMC_STEPS: [row(0.01, 400.0), row(0.02, None)]}
    by_label |= dict(
        zip(topics.DAMPED, [[row(0.02, 99.0, 1.0)], [row(0.02, None)], [row(0.02, 99.0, 1.1)]], strict=True)
    )
    return list((by_label | changes).values())


def test_tables_and_verdicts_follow_the_numbers():
    figure = topics.figure(QUICK, results())
    _, table = figure.tables
    assert [line[:3] for line in table.rows[:3:2]] == [["SGHMC-S", 0.02, 90.0], [OLD, 0.01, 110.0]]
    assert table.rows[2][-1] == "0.02, 0.04"
    assert "drawn from have" in table.title
    assert [verdict.verdict for verdict in figure.verdicts] == [UNDER_READING] * 3
    assert figure.verdicts[0].reading == f"{OLD}: behind by more than 6%, each at the best of its own steps"
    assert figure.verdicts[2].reading == "on SGHMC's step sizes, 4.4 times"
    assert "Ahead of the splitting by more: SGRLD" in figure.verdicts[0].why
    assert len(figure.panels[0].series) == len(topics.METHODS)
    assert figure.verdicts[1].reading == f"at the friction of the table: {OLD}; where D h = 2.5: {NEW}"
    tame = {OLD: [row(0.01, 80.0, 2.0)], topics.SGLD_ON_SGHMC_STEPS: [row(0.01, 100.0)]}
    calm = topics.figure(QUICK, results(**tame, **{name: [row(0.02, 99.0, 1.0)] for name in topics.DAMPED}))
    assert [verdict.verdict for verdict in calm.verdicts] == [NOT_REPRODUCED] * 3
    broken = topics.figure(
        QUICK, results(**{topics.SGLD_ON_SGHMC_STEPS: [row(0.01, None)], NEW: [row(0.01, 99.0, 2.0)]})
    )
    assert [verdict.verdict for verdict in broken.verdicts] == [REPRODUCED, UNDER_READING, NOT_REPRODUCED]
    assert (
        "SGLD has 1.333 times SGHMC's perplexity on steps of its own and – times on SGHMC's" in broken.verdicts[2].why
    )
    behind = topics.figure(QUICK, results(SGLD=[row(1e-4, 180.0)]))
    assert behind.verdicts[2].verdict == REPRODUCED


def test_parts_have_the_papers_numbers_of_topics_and_the_corpus(monkeypatch):
    corpus = lda.from_matrix(np.ones((2000, 4), int))
    monkeypatch.setattr(topics, "corpus_of", lambda path: (corpus, None))
    parts = topics.parts(FULL._replace(corpus="wiki"))
    assert {part.settings["topics"] for part in parts} == {200, 500}
    assert {part.settings["corpus"] for part in parts} == {"wiki"}
    assert {part.settings["fingerprint"] for part in parts} == {corpus.fingerprint}
    assert len({part.label for part in parts}) == len(parts) == 2 * (len(topics.METHODS) + 1 + len(topics.DAMPED))


def test_the_drawn_corpus_is_always_the_same():
    corpus, phi = topics.corpus_of(None)
    np.testing.assert_allclose(phi.sum(0), 1)
    assert topics.corpus_of.__wrapped__(None)[0].fingerprint == corpus.fingerprint
    assert topics.true_perplexity(QUICK) == pytest.approx(70, abs=3)
