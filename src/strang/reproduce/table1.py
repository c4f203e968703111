"""Table 1: topic models on text and sigmoid belief networks on MNIST."""

from typing import Any

from . import belief
from .record import Effort, Figure, Part, Table

PAPER = {  # SGHMC-S, SGHMC-E, SGLD-E
    "LDA, K = 200 (test perplexity)": (1168, 1180, 2496),
    "LDA, K = 500 (test perplexity)": (1157, 1187, 2511),
    "SBN, J = 100 (test neg-log-likelihood)": (103, 105, 126),
    "SBN, J = 200 (test neg-log-likelihood)": (98, 100, 110),
}


def parts(effort: Effort) -> list[Part]:
    return belief.parts(effort)


def figure(effort: Effort, results: list[Any]) -> Figure:
    tables, verdicts = belief.halves(effort, results)
    missing = "" if results else f" The belief networks are left out: {belief.unavailable()}"
    paper = [[k, *v] for k, v in PAPER.items()]
    return Figure(
        "table1",
        "Table 1: topic models and belief networks",
        "The splitting (SGHMC-S) is ahead of Euler (SGHMC-E), and both are far ahead of SGLD, on both models.",
        "The belief networks are learned here on MNIST; topic models are not part of this report yet. Look at how hot "
        f"each method runs (mean p², 1 where the law is right) and at SGLD on a grid of its own.{missing}",
        {},
        tables=[Table("The paper's numbers", ["model", "SGHMC-S", "SGHMC-E", "SGLD-E"], paper), *tables],
        verdicts=verdicts,
    )
