"""Parameters on disk: `.npz` files with arrays W, b and c, which anything can open."""

import io
from pathlib import Path
from typing import Any

import numpy as np

from strang.sampling.chain import Chain
from strang.sbn.scoring import check_parameters
from strang.util.errors import InputError, first_line
from strang.util.files import replace_file


def save_model(path: Path, parameters: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **parameters)
    replace_file(path, buffer.getvalue())


def load_model(path: Path) -> dict[str, np.ndarray]:
    """The parameters in a file, checked."""
    try:
        with Path(path).open("rb") as handle:
            file = np.load(handle, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise ValueError("it holds a single array")
            found = {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise InputError(f"there is no {path}.") from None
    except Exception as error:  # a damaged archive raises almost anything
        raise InputError(f"{path} is not a whole .npz file with arrays W, b and c ({first_line(error)}).") from None
    return check_parameters(found)


def keep_sample(folder: Path, chain: Chain) -> None:
    """The positions of all living chains, a file each."""
    samples = folder / "samples"
    samples.mkdir(exist_ok=True)
    for k in np.flatnonzero(np.asarray(chain.alive)):
        position = {name: np.asarray(value[k]) for name, value in chain.state.position.items()}
        save_model(samples / f"step-{int(chain.step):07d}-chain-{k}.npz", position)


def samples_of(path: Path) -> list[Path]:
    """The files meant: one, or the samples of a fit's folder (its model, where there are none), in order."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    found = sorted((path / "samples").glob("step-*.npz")) or [p for p in [path / "model.npz"] if p.exists()]
    if not found:
        raise InputError(f"{path} holds no samples and no model.npz.")
    return found
