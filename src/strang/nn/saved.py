"""The folder of a fit: `fit.json` says which fit, `starts.npz` how far the optimiser is, `choice.npz` what pilot chains
found, `settled.npz` where the averaged part begins, and `chains/` is the run itself; later legs of a long one have
`settled-2.npz`, `chains-2/` and so on. After a kill the same fit goes on from there, bit for bit."""

import hashlib
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from strang.nn.local import Frame, blank
from strang.nn.pilots import Choice
from strang.nn.sampling import MOST_LEGS, Settled
from strang.nn.settings import Settings
from strang.nn.starts import Search
from strang.util.errors import InputError
from strang.util.files import damaged, read_npz, remove_leftovers, replace_file, write_npz
from strang.util.trees import Tree, on_device

SAVE_SECONDS = 10.0
ANEW = "Delete the folder to begin the fit anew."
CHUNK = 4096  # rows that are hashed together


class Folder:
    """Keeps what a fit has come to."""

    def __init__(self, path: Path, settings: Settings, rows: tuple[np.ndarray, np.ndarray]):
        self.path, self.saved = path, time.monotonic()
        mark, known = mark_of(settings, rows), stored(path)
        if known is None:
            path.mkdir(parents=True, exist_ok=True)
            replace_file(path / "fit.json", json.dumps({"mark": mark, "seed": settings.seed}).encode())
        elif known["mark"] != mark:
            raise InputError(f"{path} holds a fit of other data or settings; write another folder, or delete it.")
        settled = (of_leg("settled.npz", leg) for leg in range(MOST_LEGS))
        remove_leftovers(path, "fit.json", "starts.npz", "choice.npz", *settled)

    def load(self, like: Search) -> tuple[Search, bool]:
        """The search that was saved, or this one, and whether it is over."""
        file = self.path / "starts.npz"
        if not file.exists():
            return like, False
        found = read_npz(file, ANEW)
        return restored(found, like, file), bool(found["done"])

    def save(self, search: Search, done: bool) -> None:
        """Keep the search, if it is over or some seconds have passed."""
        if done or time.monotonic() - self.saved > SAVE_SECONDS:
            write_npz(self.path / "starts.npz", {**named(search), "done": np.asarray(done)})
            self.saved = time.monotonic()

    def load_choice(self) -> Choice | None:
        """What pilot chains chose, and what they had, if they were run."""
        file = self.path / "choice.npz"
        if not file.exists():
            return None
        found = read_npz(file, ANEW)
        try:
            losses = dict(zip(found["temperatures"].tolist(), found["losses"].tolist(), strict=True))
            return Choice(float(found["chosen"]), losses)
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(file, error, ANEW) from None

    def save_choice(self, choice: Choice) -> None:
        """Keep what pilot chains chose."""
        losses = choice.losses
        columns = {"temperatures": np.array(list(losses)), "losses": np.array(list(losses.values()))}
        write_npz(self.path / "choice.npz", {"chosen": np.asarray(choice.temperature), **columns})

    def chains(self, leg: int) -> Path:
        """The folder of the run that is a leg of the averaged part; the first is leg 0."""
        return self.path / of_leg("chains", leg)

    def load_settled(self, like: Tree, leg: int = 0) -> Settled | None:
        """Where a leg begins, if that is known."""
        file = self.path / of_leg("settled.npz", leg)
        if not file.exists():
            return None
        found = read_npz(file, ANEW)
        coordinates = restored(found, blank(like), file)
        heat = {name.removeprefix("heat "): float(x) for name, x in found.items() if name.startswith("heat ")}
        place = Frame(coordinates, np.asarray(found["width"]))
        return Settled(place, np.asarray(found["step_size"]), float(found["friction"]), heat)

    def save_settled(self, settled: Settled, leg: int = 0) -> None:
        """Keep where a leg begins."""
        numbers = {"width": settled.frame.width, "step_size": settled.step_size, "friction": settled.friction}
        heat = {f"heat {name}": value for name, value in settled.heat.items()}
        arrays = {name: np.asarray(value) for name, value in {**numbers, **heat}.items()}
        write_npz(self.path / of_leg("settled.npz", leg), {**named(settled.frame.coordinates), **arrays})


def of_leg(name: str, leg: int) -> str:
    """The name of a file or folder of a leg.

    >>> of_leg("settled.npz", 0), of_leg("settled.npz", 1)
    ('settled.npz', 'settled-2.npz')
    """
    stem, dot, ending = name.partition(".")
    return name if leg == 0 else f"{stem}-{leg + 1}{dot}{ending}"


def stored(path: Path) -> dict[str, Any] | None:
    """The mark and the seed of the fit that a folder holds; None where it holds none."""
    file = path / "fit.json"
    if not file.exists():
        return None
    try:
        known = json.loads(file.read_text())
        return {"mark": str(known["mark"]), "seed": int(known["seed"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(file, error, ANEW) from None


def named(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree by their places."""
    return {jax.tree_util.keystr(path): np.asarray(x) for path, x in jax.tree_util.tree_leaves_with_path(tree)}


def restored(found: dict[str, np.ndarray], like: Any, file: Path) -> Any:
    """The tree that was saved, in the structure of another."""
    wanted = named(like)
    if any(name not in found or found[name].shape != array.shape for name, array in wanted.items()):
        raise damaged(file, ValueError("it holds other arrays"), ANEW)
    leaves = [on_device(found[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def mark_of(settings: Settings, rows: tuple[np.ndarray, np.ndarray]) -> str:
    """A hash of all that decides a fit, but for how long it may take."""
    numbers = {k: str(v) for k, v in asdict(settings).items() if k not in ("seconds", "store", "progress")}
    total = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode())
    for array in rows:
        total.update(f"{array.shape} {array.dtype}".encode())
        for start in range(0, len(array), CHUNK):
            total.update(np.ascontiguousarray(array[start : start + CHUNK]).tobytes())
    return total.hexdigest()
