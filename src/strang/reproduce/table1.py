"""Table 1: topic models on text and sigmoid belief networks on MNIST."""

from typing import Any

from . import belief, topics
from .record import Effort, Figure, Part, Table

PAPER = {  # SGHMC-S, SGHMC-E, SGLD-E
    "LDA, K = 200 (test perplexity)": (1168, 1180, 2496),
    "LDA, K = 500 (test perplexity)": (1157, 1187, 2511),
    "SBN, J = 100 (test neg-log-likelihood)": (103, 105, 126),
    "SBN, J = 200 (test neg-log-likelihood)": (98, 100, 110),
}


def parts(effort: Effort) -> list[Part]:
    return [*topics.parts(effort), *belief.parts(effort)]


def figure(effort: Effort, results: list[Any]) -> Figure:
    upper = len(topics.parts(effort))
    panels, text_tables, text_verdicts = topics.halves(effort, results[:upper])
    image_tables, image_verdicts = belief.halves(effort, results[upper:])
    missing = "" if results[upper:] else f" The belief networks are left out: {belief.unavailable()}"
    paper = [[k, *v] for k, v in PAPER.items()]
    return Figure(
        "table1",
        "Table 1: topic models and belief networks",
        "The splitting (SGHMC-S) is ahead of Euler (SGHMC-E), and both are far ahead of SGLD, on both models.",
        "Look at how hot each method runs (mean p², 1 where the law is right), at the steps at which each breaks, and "
        f"at SGLD on a grid of its own. The paper's perplexities are of another corpus and split.{missing}",
        {"corpus": effort.corpus or "drawn from known topics"},
        panels=panels,
        tables=[
            Table("The paper's numbers", ["model", "SGHMC-S", "SGHMC-E", "SGLD-E"], paper),
            *text_tables,
            *image_tables,
        ],
        verdicts=[*text_verdicts, *image_verdicts],
    )
