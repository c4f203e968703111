"""What a stored run has come to, read from its folder while it runs or afterwards; nothing there is changed."""

from pathlib import Path
from typing import Any

import numpy as np

from strang.run.arviz import data_tree, mixing
from strang.storage import draws as samples
from strang.storage.manifest import read_spec
from strang.storage.series import latest, read_series, throughput
from strang.storage.store import is_held, read_chain, sums_of
from strang.util.errors import InputError

KNOWN = ("step", "seconds", "since", "average", "error", "temperature", "gradient_noise", "diverged", "waiting")


def report(folder: str | Path) -> dict[str, Any]:
    """All there is to say of the run in a folder, as JSON can hold it."""
    folder = Path(folder)
    spec, running = read_spec(folder), is_held(folder)
    path = folder / "chain.npz"
    arrays = read_chain(path) if path.exists() else {}
    step, alive = chain_state(path, arrays) if arrays else (0, None)
    series = [entry for entry in read_series(folder) if entry["step"] <= step]
    found = overview(folder, spec, series, step, running)
    if alive is not None:
        found["chains"], found["diverged"] = len(alive), int((~alive).sum())
    found["mixing"], found["mixing_missing"] = None, None
    if spec.get("thin") and arrays:
        try:
            found["mixing"] = mixing_of(folder, spec, arrays, step, alive)
        except InputError as error:
            if "strang[arviz]" not in str(error):
                raise
            found["mixing_missing"] = str(error)
    return {**found, "series": series}


def chain_state(path: Path, arrays: dict[str, np.ndarray]) -> tuple[int, np.ndarray]:
    """How far the chains are, and which are alive."""
    try:
        return int(arrays[".step"]), np.atleast_1d(arrays[".alive"]).astype(bool)
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path} is damaged: it does not say how far the run is.") from None


def overview(
    folder: Path, spec: dict[str, Any], series: list[dict[str, Any]], step: int, running: bool
) -> dict[str, Any]:
    """The run as its last save left it."""
    last = latest(series)
    settings = spec.get("settings", {})
    chains = settings.get("chains", 1)
    rates = throughput(series, chains)
    over = step >= spec["steps"] or last.get("diverged") == chains
    names = settings.get("averages") or []
    values, errors = (last.get(key) or [] for key in ("average", "error"))
    return {
        "folder": str(folder),
        "state": "finished" if over else "running" if running else "stopped",
        "step": step,
        "steps": spec["steps"],
        "chains": chains,
        "averages": [
            {"name": name, "value": value, "error": error}
            for name, value, error in zip(names, values, errors, strict=False)
        ],
        "temperature": last.get("temperature"),
        "gradient_noise": last.get("gradient_noise"),
        "diverged": last.get("diverged", 0),
        "waiting": last.get("waiting"),
        "others": {name: value for name, value in last.items() if name not in KNOWN and is_number(value)},
        "seconds": sum(seconds for _, seconds, _ in rates),
        "steps_per_second": rates[-1][2] if rates else None,
        "settings": settings,
        "versions": spec.get("versions", {}),
        "about": spec["about"],
    }


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def mixing_of(folder: Path, spec: dict[str, Any], arrays: dict[str, np.ndarray], step: int, alive) -> dict[str, Any]:
    """ESS and R-hat of the draws after burn-in, of the living chains."""
    thin, burn_in = spec["thin"], spec.get("settings", {}).get("burn_in", 0)
    after = {name: array[burn_in // thin :] for name, array in draws_of(folder, spec, arrays, step).items()}
    count, living = step // thin - burn_in // thin, np.flatnonzero(alive)
    rows = mixing(after, living) if count >= 4 and len(living) else []
    return {"draws": max(count, 0), "chains": len(living), "coordinates": rows}


def draws_of(folder: Path, spec: dict[str, Any], arrays: dict[str, np.ndarray], step: int) -> dict[str, np.ndarray]:
    """The thinned positions by name, left on the disk: draws first, then chains."""
    positions = [array for name, array in arrays.items() if name.startswith(".state.position")]
    sums = sums_of(arrays)
    if len(sums) != len(positions):
        raise InputError(f"{folder / 'chain.npz'} is damaged: its checksums are not those of its positions.")
    like = {name: samples.stored(array) for name, array in zip(sums, positions, strict=True)}
    return samples.read(folder / "samples", like, step // spec["thin"], sums)


def to_arviz(folder: str | Path) -> Any:
    """The draws of a stored run, finished or not, as `Run.to_arviz` has them; without their step sizes where these
    change, since a folder only keeps the first and the last."""
    folder = Path(folder)
    spec, path = read_spec(folder), folder / "chain.npz"
    thin, settings = spec.get("thin"), spec.get("settings", {})
    arrays = read_chain(path) if path.exists() and thin else {}
    step = chain_state(path, arrays)[0] if arrays else 0
    if not thin or step < thin:
        raise InputError(f"{folder} holds no draws{'' if thin else '; write thin=10, say, to keep every tenth'}.")
    draws, steps = draws_of(folder, spec, arrays, step), thin * np.arange(1, step // thin + 1)
    sizes = settings.get("step_size") or {}
    constant = is_number(sizes.get("first")) and sizes["first"] == sizes.get("last")
    known = np.full(len(steps), sizes["first"]) if constant else None
    return data_tree(draws, steps, settings.get("burn_in", 0), np.atleast_1d(arrays[".diverged_at"]), known)


def describe(found: dict[str, Any]) -> list[str]:
    """The report for people."""
    settings, chains = found["settings"], found["chains"]
    what = " ".join(str(settings[key]) for key in ("dynamics", "integrator") if key in settings)
    rate = "" if found["steps_per_second"] is None else f", {found['steps_per_second']:,.0f} steps/s"
    lines = [
        f"{found['folder']}: {found['state']} at step {found['step']:,} of {found['steps']:,}",
        f"{what}{', ' * bool(what)}{chains} chain{'s' * (chains != 1)}, {found['seconds']:.1f} s of sampling{rate}",
    ]
    shown = found["averages"][:6]
    lines += [f"{each['name']}: {show(each['value'])} ± {show(each['error'], 2)}" for each in shown]
    if len(found["averages"]) > len(shown):
        lines.append(f"... ({len(found['averages'])} numbers)")
    if found["temperature"] is not None:
        lines.append(f"kinetic temperature {show(found['temperature'], 4)} (1 where the law is right)")
    if found["gradient_noise"] is not None:
        lines.append(f"gradient noise V {show(found['gradient_noise'], 4)} a coordinate on average")
    if found.get("waiting") is not None:
        lines.append(f"waiting for data {100 * found['waiting']:.2g} % of the time")
    lines += [f"{name} {show(value)}" for name, value in found["others"].items()]
    if found["diverged"]:
        lines.append(f"{found['diverged']} of {chains} chains diverged")
    if found.get("mixing"):
        lines += describe_mixing(found["mixing"])
    if found.get("mixing_missing"):
        lines.append(f"ESS and R-hat: {found['mixing_missing']}")
    if found["state"] == "stopped":
        lines.append(goes_on(found))
    return lines


def describe_mixing(found: dict[str, Any]) -> list[str]:
    """The worst of the coordinates."""
    rows = found["coordinates"]
    head = f"{found['draws']:,} draws of {found['chains']} chains after burn-in"
    if not rows:
        return [f"{head}: too few for ESS and R-hat"]
    parts = [head, f"worst of {len(rows)} coordinates"]
    for key, name, worst in (("ess_bulk", "bulk ESS", min), ("ess_tail", "tail ESS", min), ("r_hat", "R-hat", max)):
        known = [row for row in rows if row[key] is not None]
        if known:
            row = worst(known, key=lambda row: row[key])
            parts.append(f"{name} {show(row[key], 4)} ({row['name']})")
    return [": ".join(parts[:2]) + ": " + ", ".join(parts[2:])]


def goes_on(found: dict[str, Any]) -> str:
    """What to do about a run that stopped."""
    if found["about"].get("command"):
        return f"no process is running it; strang resume {found['folder']} goes on"
    return "no process is running it; the same call of strang.sample goes on"


def show(value: Any, digits: int = 6) -> str:
    return "–" if value is None else f"{value:.{digits}g}"
