"""Reports on stored runs, read from their folders while they run or afterwards; nothing there is changed."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from strang.run.arviz import data_tree, mixing
from strang.storage import draws as samples
from strang.storage.manifest import read_spec
from strang.storage.series import latest, read_series, throughput
from strang.storage.store import is_held, read_chain, sums_of
from strang.util.errors import InputError

STANDARD = (
    "step", "seconds", "since", "average", "error", "temperature", "gradient_noise", "diverged", "waiting", "trusted",
)  # fmt: skip
MAX_PRINTED_AVERAGES = 6
MIN_DRAWS = 4  # for ESS and R-hat


def report(folder: str | Path) -> dict[str, Any]:
    """Summarises the run in a folder, as JSON can hold it."""
    folder = Path(folder)
    spec, running = read_spec(folder), is_held(folder)
    arrays, step, alive = saved_chain(folder)
    series = [entry for entry in read_series(folder) if entry["step"] <= step]
    result = overview(folder, spec, series, step, running)
    if arrays:
        result |= {"chains": len(alive), "diverged": int((~alive).sum())}
    result |= {"mixing": None, "mixing_missing": None}
    if spec.get("thin") and arrays:
        try:
            result["mixing"] = measure_mixing(folder, spec, arrays, step, alive)
        except InputError as error:
            if "strang[arviz]" not in str(error):
                raise
            result["mixing_missing"] = str(error)
    return {**result, "series": series}


def saved_chain(folder: Path) -> tuple[dict[str, np.ndarray], int, np.ndarray]:
    """The arrays of the last save, its step, and which chains are alive; no arrays before the first save."""
    path = folder / "chain.npz"
    if not path.exists():
        return {}, 0, np.ones(0, bool)
    arrays = read_chain(path)
    try:
        return arrays, int(arrays[".step"]), np.atleast_1d(arrays[".alive"]).astype(bool)
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path} is damaged: it does not say how far the run is.") from None


def overview(
    folder: Path, spec: dict[str, Any], series: list[dict[str, Any]], step: int, running: bool
) -> dict[str, Any]:
    """The run as its last save left it."""
    last, settings = latest(series), spec.get("settings", {})
    chains = settings.get("chains", 1)
    rates = throughput(series, chains)
    over = step >= spec["steps"] or last.get("diverged") == chains or bool(series and series[-1].get("ended"))
    names, values, errors = settings.get("averages") or [], last.get("average") or [], last.get("error") or []
    averages = zip(names, values, errors, strict=False)
    return {
        "folder": str(folder),
        "state": "finished" if over else "running" if running else "stopped",
        "step": step,
        "steps": spec["steps"],
        "chains": chains,
        "trusted": last.get("trusted"),
        "reasons": last.get("reasons") or [],
        "summary": last.get("summary"),
        "ended": series[-1].get("ended") if series else None,
        "averages": [{"name": name, "value": value, "error": error} for name, value, error in averages],
        "temperature": last.get("temperature"),
        "gradient_noise": last.get("gradient_noise"),
        "diverged": last.get("diverged", 0),
        "waiting": last.get("waiting"),
        "others": {name: value for name, value in last.items() if is_other(name, value)},
        "seconds": sum(seconds for _, seconds, _ in rates),
        "steps_per_second": rates[-1][2] if rates else None,
        "settings": settings,
        "versions": spec.get("versions", {}),
        "about": spec["about"],
    }


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_other(name: str, value: Any) -> bool:
    """Whether an entry of the series is a number that the application measured."""
    return name not in STANDARD and is_number(value)


def measure_mixing(folder: Path, spec: dict[str, Any], arrays, step: int, alive: np.ndarray) -> dict[str, Any]:
    """ESS and R-hat of the draws after burn-in, over the chains that are alive."""
    thin, burn_in = spec["thin"], spec.get("settings", {}).get("burn_in", 0)
    after = {name: array[burn_in // thin :] for name, array in draws_of(folder, spec, arrays, step).items()}
    count, living = step // thin - burn_in // thin, np.flatnonzero(alive)
    rows = mixing(after, living) if count >= MIN_DRAWS and len(living) else []
    return {"draws": max(count, 0), "chains": len(living), "coordinates": rows}


def draws_of(folder: Path, spec: dict[str, Any], arrays: dict[str, np.ndarray], step: int) -> dict[str, np.ndarray]:
    """The thinned positions by name, left on the disk: draws first, then chains."""
    chains, sums = np.atleast_1d(arrays[".alive"]).size, sums_of(arrays)
    try:
        like = {name: like_named(text, chains) for name, text in spec["settings"]["position"].items()}
    except (KeyError, TypeError, AttributeError, ValueError):
        raise InputError(f"{folder / 'spec.json'} is damaged: it does not say what a draw is.") from None
    if set(sums) != set(like):
        raise InputError(f"{folder / 'chain.npz'} is damaged: its checksums are not those of its positions.")
    return samples.read(folder / "samples", like, step // spec["thin"], sums)


def draws_after_burn_in(folder: Path) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The draws of the chains that are alive by name, draws first, left on the disk, and the steps they are from."""
    spec, (arrays, step, alive) = read_spec(folder), saved_chain(folder)
    thin, first = spec["thin"], spec.get("settings", {}).get("burn_in", 0) // spec["thin"]
    draws = draws_of(folder, spec, arrays, step)
    chains = slice(None) if alive.all() else np.flatnonzero(alive)
    return {name: array[first:, chains] for name, array in draws.items()}, thin * np.arange(first + 1, step // thin + 1)


def like_named(text: str, chains: int) -> np.ndarray:
    """An array, which takes no memory, of a shape and dtype as a spec has them, led by chains.

    >>> like_named("float32[3, 2]", 5).shape
    (5, 3, 2)
    """
    dtype, _, shape = text.partition("[")
    return np.broadcast_to(np.zeros((), dtype), (chains, *json.loads("[" + shape)))


def to_arviz(folder: str | Path) -> Any:
    """Returns the draws of a stored run, finished or not, as `Run.to_arviz` does; without their step sizes where these
    change, since a folder only keeps the first and the last."""
    folder = Path(folder)
    spec, (arrays, step, _) = read_spec(folder), saved_chain(folder)
    thin, settings = spec.get("thin"), spec.get("settings", {})
    if not thin or step < thin:
        raise InputError(f"{folder} holds no draws{'' if thin else '; write thin=10, say, to keep every tenth'}.")
    draws, steps = draws_of(folder, spec, arrays, step), thin * np.arange(1, step // thin + 1)
    sizes = settings.get("step_size") or {}
    constant = is_number(sizes.get("first")) and sizes["first"] == sizes.get("last")
    step_sizes = np.full(len(steps), sizes["first"]) if constant else None
    return data_tree(draws, steps, settings.get("burn_in", 0), np.atleast_1d(arrays[".diverged_at"]), step_sizes)


def describe(result: dict[str, Any]) -> list[str]:
    """Formats a report as lines of text."""
    settings, chains, averages = result["settings"], result["chains"], result["averages"]
    what = " ".join(str(settings[key]) for key in ("dynamics", "integrator") if key in settings)
    rate = "" if result["steps_per_second"] is None else f", {result['steps_per_second']:,.0f} steps/s"
    lines = [
        f"{result['folder']}: {result['state']} at step {result['step']:,} of {result['steps']:,}",
        f"{what}{', ' * bool(what)}{chains} chain{'s' * (chains != 1)}, {result['seconds']:.1f} s of sampling{rate}",
        *(f"{a['name']}: {rounded(a['value'])} ± {rounded(a['error'], 2)}" for a in averages[:MAX_PRINTED_AVERAGES]),
    ]
    if len(averages) > MAX_PRINTED_AVERAGES:
        lines.append(f"... ({len(averages)} numbers)")
    if result.get("trusted") is not None:
        first, *others = result["reasons"] or [""]
        lines.append("trusted, as far as it has come" if result["trusted"] else f"NOT TO BE TRUSTED: {first}")
        lines += [f"  also: {reason}" for reason in others]
    if result.get("ended"):
        lines.append(result["ended"])
    if result["temperature"] is not None:
        lines.append(f"temperature {rounded(result['temperature'], 4)} (should be 1)")
    if result["gradient_noise"] is not None:
        lines.append(f"gradient noise: variance V {rounded(result['gradient_noise'], 4)} per coordinate on average")
    if result.get("waiting") is not None:
        lines.append(f"waiting for data {100 * result['waiting']:.2g} % of the time")
    lines += [f"{name} {rounded(value)}" for name, value in result["others"].items()]
    if result["diverged"]:
        lines.append(f"{result['diverged']} of {chains} chains diverged")
    if result.get("mixing"):
        lines.append(describe_mixing(result["mixing"]))
    if result.get("mixing_missing"):
        lines.append(f"ESS and R-hat: {result['mixing_missing']}")
    if result["state"] == "stopped":
        by_command = result["about"].get("command")
        how = f"strang resume {result['folder']}" if by_command else "the same call of strang.sample"
        lines.append(f"no process is running it; {how} continues it")
    return lines


def describe_mixing(result: dict[str, Any]) -> str:
    """The worst of the coordinates."""
    rows = result["coordinates"]
    head = f"{result['draws']:,} draws of {result['chains']} chains after burn-in"
    if not rows:
        return f"{head}: too few for ESS and R-hat"
    parts = []
    for key, name, worst in (("ess_bulk", "bulk ESS", min), ("ess_tail", "tail ESS", min), ("r_hat", "R-hat", max)):
        row = worst((row for row in rows if row[key] is not None), key=lambda row: row[key], default=None)
        parts += [] if row is None else [f"{name} {rounded(row[key], 4)} ({row['name']})"]
    return f"{head}: worst of {len(rows)} coordinates: {', '.join(parts)}"


def rounded(value: float | None, digits: int = 6) -> str:
    return "–" if value is None else f"{value:.{digits}g}"
