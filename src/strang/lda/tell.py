"""The results of the commands, for people."""

from pathlib import Path
from typing import Any


def describe(folder: Path, result: dict[str, Any]) -> list[str]:
    """A fit."""
    friction = "" if result["friction"] is None else f", friction {result['friction']:.4g}"
    lines = [
        f"{result['dynamics']} {result['integrator']} on {result['parametrisation']} topics, K = {result['topics']}, "
        f"h {result['step_size']:.3g}{friction}: {result['documents']:,} documents in {result['steps']:,} steps"
    ]
    if result["seconds"] is not None:
        speed = result["documents"] / max(result["seconds"], 1e-9)
        lines[0] += f", {result['seconds']:.0f} s ({speed:,.0f} documents/s)"
    if result["perplexity"] is not None:
        lines.append(
            f"perplexity {result['perplexity']:.1f} (last sample {result['perplexity_last']:.1f}) of "
            f"{result['held_out']['documents']:,} held-out documents, {result['held_out']['tokens_scored']:,} tokens"
        )
    if result["temperature"] is not None:
        lines.append(f"mean p² {result['temperature']:.3g} (1 where the law is right)")
    if result["diverged"]:
        lines.append("the chain diverged; write a smaller --step-size")
    else:
        lines.append(f"the topics are in {folder / 'topics.npz'}")
    return lines
