"""Table 1: LDA on Wikipedia and sigmoid belief networks on MNIST. The place for their results; none are made here."""

from typing import Any

from .record import Effort, Figure, Part, Table

PAPER = {  # SGHMC-S, SGHMC-E, SGLD-E
    "LDA, K = 200 (test perplexity)": (1168, 1180, 2496),
    "LDA, K = 500 (test perplexity)": (1157, 1187, 2511),
    "SBN, J = 100 (test neg-log-likelihood)": (103, 105, 126),
    "SBN, J = 200 (test neg-log-likelihood)": (98, 100, 110),
}


def parts(effort: Effort) -> list[Part]:
    return []


def figure(effort: Effort, results: list[Any]) -> Figure:
    return Figure(
        "table1",
        "Table 1: topic models and belief networks",
        "The splitting (SGHMC-S) is ahead of Euler (SGHMC-E), and both are far ahead of SGLD, on both models.",
        "These are the paper's numbers. The two models are not part of this report yet, so nothing is said of them.",
        {},
        tables=[
            Table("The paper's numbers", ["model", "SGHMC-S", "SGHMC-E", "SGLD-E"], [[k, *v] for k, v in PAPER.items()])
        ],
    )
