"""What a run's folder says it is: `spec.json`, with a hash of all that decides a number of the run.

The hashes are what is compared when a run goes on; settings and versions stand there for people and for reports.
"""

import hashlib
import json
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from strang.data.batches import Data
from strang.dynamics.fields import numbers
from strang.sampling.chain import advance_alone
from strang.sampling.job import Job, like_draw
from strang.storage.draws import leaf_names
from strang.util.errors import InputError, first_line
from strang.util.trees import Tree
from strang.util.version import versions

FORMAT = 1
MAX_SERIES_VALUES = 100  # numbers of an average up to which they go into the series of a stored run
UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error, RecursionError,
)  # fmt: skip
MEANING = {"code": "the model, integrator, average or JAX version", "numbers": "settings or starts", "data": "the data"}


def spec_of(job: Job, about: dict[str, Any]) -> dict[str, Any]:
    """All that `spec.json` holds."""
    return {
        "format": FORMAT,
        "steps": job.steps,
        "thin": job.thin,
        "about": about,
        "hashes": fingerprint(job),
        "files": source.marks if (source := job.inputs.data.source) else None,
        "settings": settings_of(job),
        "versions": versions(),
    }


def checksum(content: dict[str, Any]) -> str:
    """Of anything JSON can hold, whatever its order."""
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


def settings_of(job: Job) -> dict[str, Any]:
    """The settings by their names, as far as they are numbers and names."""
    dynamics, data, schedule = job.inputs.dynamics, job.inputs.data, job.inputs.schedule
    positions = jax.tree.map(lambda x: x[0], like_draw(job))
    shapes = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(positions)]
    return {
        "dynamics": type(dynamics).__name__,
        **{name: extent(value) for name, value in numbers(dynamics).items() if jax.tree.leaves(value)},
        "integrator": job.program.step.name,
        "step_size": {
            "first": extent(schedule(jnp.asarray(1.0))),
            "last": extent(schedule(jnp.asarray(float(job.steps)))),
        },
        "chains": job.program.chains,
        "burn_in": int(job.inputs.burn_in),
        "thin": job.thin,
        "batches": data.batch_order.name,
        "batch": data.batch_size,
        "data": data.size,
        "parts": job.program.parts,
        "gradient": type(job.program.estimator).__name__,
        "position": dict(zip(leaf_names(positions), shapes, strict=True)),
        "averages": number_names(job.chain.average.total.get("average")),
    }


def extent(value: Tree) -> Any:
    """A number, or the least and the largest where there are several; with the digits of their own precision."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(value)]
    low, high = min(float(str(leaf.min())) for leaf in leaves), max(float(str(leaf.max())) for leaf in leaves)
    return low if low == high else [low, high]


def number_names(tree: Tree) -> list[str] | None:
    """A name for each number of an average (whose leading axis is chains), if they are few."""
    names: list[str] = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if len(names) + leaf[0].size > MAX_SERIES_VALUES:
            return None
        place = jax.tree_util.keystr(path)
        names += [f"average{place}{list(index) if index else ''}" for index in np.ndindex(leaf.shape[1:])]
    return names or None


def fingerprint(job: Job) -> dict[str, str]:
    """Hashes of what decides every number of a run: the traced code, the settings with the chains' keys and starts, and
    the data. The job is one that has not moved yet, also where a run goes on."""
    traced = advance_alone.trace(job.program, job.inputs, job.chain, job.chain.step).jaxpr
    text = re.sub(r" at 0x[0-9a-f]+", "", str(traced.jaxpr))  # where a function lies in memory says nothing
    return {
        "code": digest([np.frombuffer(text.encode(), np.uint8), *constants(traced)]),
        "numbers": digest(jax.tree.leaves((job.inputs[1:], job.chain.keys, job.chain.state.position))),
        "data": content_of(job.inputs.data),
    }


def content_of(data: Data) -> str:
    """A hash of all rows, wherever they are."""
    if data.source is None:
        return digest(jax.tree.leaves(data))
    data.verify()
    return str(data.source.digest)


def known_files(folder: Path) -> tuple[list[Any], str] | None:
    """The files that a run in this folder was begun with, and the hash of its data; None: it does not say."""
    try:
        spec = read_spec(folder)
        return (spec["files"], spec["hashes"]["data"]) if spec.get("files") else None
    except InputError:
        return None


def constants(traced) -> list[Any]:
    """The arrays that traced code holds, its inner functions' as well."""
    arrays = list(traced.consts)
    for equation in traced.jaxpr.eqns:
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "consts")):
            arrays += constants(inner) if hasattr(inner, "consts") else []
    return arrays


def digest(arrays) -> str:
    """A hash of arrays with their shapes and dtypes."""
    total = hashlib.sha256()
    for array in map(np.asarray, arrays):
        total.update(f"{array.dtype}{array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def read_spec(folder: Path) -> dict[str, Any]:
    """What the folder says it is."""
    path = Path(folder) / "spec.json"
    try:
        spec = json.loads(path.read_text())
        if spec.pop("sum", None) not in (None, checksum(spec)):
            raise ValueError("its checksum is another")
        whole = spec["format"] == FORMAT and set(spec["hashes"]) == set(MEANING) and isinstance(spec["steps"], int)
        if not (whole and isinstance(spec["about"], dict)):
            raise ValueError("not of this format")
    except FileNotFoundError:
        raise InputError(f"{folder} holds no run: there is no spec.json in it.") from None
    except UNREADABLE as error:
        raise InputError(f"{path} is damaged or of another format ({first_line(error)}).") from None
    return spec


def check_same(folder: Path, stored: dict[str, Any], mine: dict[str, Any]) -> None:
    """Refuse to go on with other code, settings or data than the run began with."""
    if stored.get("thin") != mine["thin"]:
        raise InputError(f"{folder} was begun with thin={stored.get('thin')}, not {mine['thin']}; give the same.")
    begun, asked = parts_in(stored), parts_in(mine)
    if begun != asked:
        raise InputError(f"{folder} was begun with parts={begun}, not {asked}; give the same, or leave it out.")
    other = [MEANING[name] for name in MEANING if stored["hashes"][name] != mine["hashes"][name]]
    if other:
        raise InputError(
            f"{folder} holds another run: {' and '.join(other)} differ from what it began with; "
            "give the same ones, or write another folder."
        )


def parts_in(spec: dict[str, Any]) -> int:
    """The parts that a run's minibatches are cut in."""
    settings = spec.get("settings")
    return settings.get("parts", 1) if isinstance(settings, dict) else 1


def check_about(about: Any) -> dict[str, Any]:
    """What the caller wants to be kept with a run, if JSON can hold it."""
    try:
        json.dumps(about, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"about cannot be kept ({first_line(error)}); give a dict that JSON can hold.") from None
    if not isinstance(about, dict | None):
        raise InputError(f"about is a {type(about).__name__}; give a dict that JSON can hold.")
    return about or {}
