"""The results of the commands as lines of text."""

import math
from pathlib import Path
from typing import Any


def describe(folder: Path, result: dict[str, Any]) -> list[str]:
    """The result of a fit."""
    friction = "" if result["friction"] is None else f", friction {result['friction']:.4g}"
    first = (
        f"{result['dynamics']} {result['integrator']} on {result['parametrisation']} topics, K = {result['topics']}, "
        f"h {result['step_size']:.3g}{friction}: {result['documents']:,} documents in {result['steps']:,} steps"
    )
    if result["seconds"] is not None:
        speed = result["documents"] / max(result["seconds"], 1e-9)
        first += f", {result['seconds']:.0f} s ({speed:,.0f} documents/s)"
    lines = [first]
    if result["perplexity"] is not None:
        lines.append(
            f"perplexity {result['perplexity']:.1f} over {result['samples']} posterior samples (last sample "
            f"{result['perplexity_last']:.1f}) of {result['held_out']['documents']:,} held-out documents, "
            f"{result['held_out']['tokens_scored']:,} tokens"
        )
    if result["temperature"] is not None:
        lines.append(f"kinetic temperature {result['temperature']:.3g} (should be 1)")
    if result["diverged"]:
        lines.append("the chain diverged; write a smaller --step-size")
    else:
        lines.append(f"the topics are in {folder / 'topics.npz'}; to see them: strang lda topics {folder}")
    return lines if result["page"] is None else [*lines, f"the page is {result['page']}"]


def describe_topics(result: dict[str, Any]) -> list[str]:
    """The topics of a fit, one per line."""
    several = result["samples"] and result["samples"] > 1
    spread = f"± one standard deviation over {result['samples']} posterior samples" if several else "of one sample"
    head = f"{len(result['topics'])} topics over {result['vocabulary']:,} words, largest first"
    lines = [f"{head}; probabilities in percent, {spread}"]
    if result["coherence_missing"]:
        lines.append(f"no coherence: {result['coherence_missing']}")
    lines.append(f"{'topic':>5}{'tokens':>8}{'NPMI':>7}  words")
    for topic in result["topics"]:
        words = ", ".join(f"{word['word']} {percent(word['probability'], word['sd'])}" for word in topic["words"])
        size = f"{100 * topic['share']:.2f} %" if math.isfinite(topic["share"]) else "-"
        npmi = "-" if topic["coherence"] is None else f"{topic['coherence']:.2f}"
        lines.append(f"{topic['topic']:>5}{size:>8}{npmi:>7}  {words}")
    return lines


def percent(value: float, sd: float) -> str:
    """
    >>> percent(0.0312, 0.0041), percent(0.5, float("nan"))
    ('3.1±0.41', '50')
    """
    return f"{100 * value:.2g}" + (f"±{100 * sd:.2g}" if math.isfinite(sd) else "")


def describe_score(result: dict[str, Any]) -> list[str]:
    """The scores of topics on a corpus."""
    how = result["held_out"]
    scored = f"one token in {how['every']}" if "every" in how else f"{100 * how['share']:.0f} % of the tokens"
    seed = "" if "every" in how else f" (seed {how['seed']})"
    last = "" if result["perplexity_last"] is None else f" (last sample {result['perplexity_last']:.1f})"
    lines = [
        f"perplexity {result['perplexity']:.1f}{last}: {result['topics']} topics on {result['documents']:,} documents, "
        f"{scored}{seed} scored, {how['tokens_scored']:,} in all",
        f"coherence (NPMI) {result['coherence']:.3f}, mean over topics, first {result['coherence_words']} words, "
        f"{result['coherence_documents']:,} documents",
    ]
    if (count := result["documents_trained_on"]) is not None and count > 0:
        lines.append(f"{count:,} of the scored documents were in the training data: the perplexity is too optimistic")
    return lines
