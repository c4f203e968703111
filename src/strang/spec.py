"""What a run's folder says it is: `spec.json`, with a hash of all that decides a number of the run.

The hashes are what is compared when a run goes on; settings and versions stand there for people and for reports.
"""

import hashlib
import importlib.metadata
import json
import platform
import re
import zipfile
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .chain import advance
from .data import Data
from .errors import InputError, first_line
from .prepare import Job
from .samples import leaf_names
from .team import Team
from .tree import Tree

FORMAT = 1
FEW = 100  # numbers of an average that go into the series of a stored run
UNREADABLE = (
    OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile, zlib.error, RecursionError,
)  # fmt: skip
MEANING = {"code": "the model, integrator, average or JAX version", "numbers": "settings or starts", "data": "the data"}
DEPENDENCIES = ("jax", "jaxlib", "numpy")


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


def versions() -> dict[str, str]:
    """What the numbers are made with."""
    from . import __version__

    found = {name: importlib.metadata.version(name) for name in DEPENDENCIES}
    return {"strang": __version__, "python": platform.python_version(), "machine": platform.machine(), **found}


def settings_of(job: Job) -> dict[str, Any]:
    """The settings by their names, as far as they are numbers and names."""
    dynamics, data, schedule = job.inputs.dynamics, job.inputs.data, job.inputs.schedule
    numbers = {f.name: getattr(dynamics, f.name) for f in fields(dynamics) if not f.metadata.get("static")}
    positions = jax.tree.map(lambda x: x[0], job.chain.state.position)
    shapes = [f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(positions)]
    return {
        "dynamics": type(dynamics).__name__,
        **{name: extent(value) for name, value in numbers.items() if jax.tree.leaves(value)},
        "integrator": job.program.step.name,
        "step_size": {
            "first": extent(schedule(jnp.asarray(1.0))),
            "last": extent(schedule(jnp.asarray(float(job.steps)))),
        },
        "chains": job.program.chains,
        "burn_in": int(job.inputs.burn_in),
        "thin": job.thin,
        "batches": data.order,
        "batch": data.batch,
        "data": data.size,
        "parts": job.program.cuts.parts,
        "groups": job.program.cuts.groups,
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
    found: list[str] = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if len(found) + leaf[0].size > FEW:
            return None
        place = jax.tree_util.keystr(path)
        found += [f"average{place}{list(index) if index else ''}" for index in np.ndindex(leaf.shape[1:])]
    return found or None


def fingerprint(job: Job) -> dict[str, str]:
    """Hashes of what decides every number of a run: the traced code, the settings with the chains' keys and starts, and
    the data. The job is one that has not moved yet, also where a run goes on."""
    chain, _, portion = Team(job, 0).members[0].groups[0]

    def go_on(inputs, chain, stop, *given):
        return advance(job.program, inputs, chain, stop, None, jnp.uint32(1), *given)

    traced = jax.make_jaxpr(go_on)(job.inputs, chain, chain.step, *([] if portion is None else [portion]))
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
    found = list(traced.consts)
    for equation in traced.jaxpr.eqns:
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "consts")):
            found += constants(inner) if hasattr(inner, "consts") else []
    return found


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


def check_same(folder: Path, found: dict[str, Any], mine: dict[str, Any]) -> None:
    """Refuse to go on with other code, settings or data than the run began with."""
    if found.get("thin") != mine["thin"]:
        raise InputError(f"{folder} was begun with thin={found.get('thin')}, not {mine['thin']}; give the same.")
    begun, asked = cuts_in(found), cuts_in(mine)
    for name in begun:
        if begun[name] != asked[name]:
            raise InputError(
                f"{folder} was begun with {name}={begun[name]}, not {asked[name]}; give the same, or leave it out."
            )
    other = [MEANING[name] for name in MEANING if found["hashes"][name] != mine["hashes"][name]]
    if other:
        raise InputError(
            f"{folder} holds another run: {' and '.join(other)} differ from what it began with; "
            "give the same ones, or write another folder."
        )


def cuts_in(spec: dict[str, Any]) -> dict[str, int]:
    """What a run's minibatches and chains are cut in; 1 where that is not written down, as it once was not."""
    settings = spec.get("settings")
    return {name: settings.get(name, 1) if isinstance(settings, dict) else 1 for name in ("parts", "groups")}
