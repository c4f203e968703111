"""Makes orders.png: which rows minibatch orders visit, and what that does to the bias.   python docs/pictures/orders.py

The model is a Gaussian with 24 rows, in batches of 4, so that an epoch has 6 steps. Those of a sweep are sorted by
first visit, since the numbers of rows mean nothing. Errors of the posterior variance are exact: nothing is simulated.
"""

import numpy as np
from look import INK, MUTED, PAPER, RIGHT, RULE, WRONG, plt, save
from matplotlib.colors import ListedColormap

import strang
from strang.data.orders import make_order
from strang.theory import finite_time
from strang.util import random

ROWS, BATCH, SHOWN, FRICTION = 24, 4, 24, 20.0
SIZES = np.geomspace(0.002, 0.06, 12)
ORDERS = {
    "full": "all rows,\nevery step",
    "iid": "rows drawn\nanew each step",
    "reshuffled": "each row once per\nepoch, shuffled",
    "symmetric": "an epoch forwards,\nthen backwards",
    "cyclic": "the same sweep\nagain and again",
}

data = np.random.default_rng(0).normal(size=ROWS)
data = (data - data.mean()) / data.std()


def visits(name: str) -> np.ndarray:
    """Row by step: 0 where the row is not in the batch, else 1 or 2 in odd and even epochs."""
    order = make_order(ROWS, BATCH, name)
    keys = random.chain_keys(0, 1).batch
    rows = [np.ravel(order.indices(order.salt(keys, np.uint32(l)), np.uint32(l))) for l in range(SHOWN)]
    first = range(ROWS) if order.independent else list(dict.fromkeys(int(row) for batch in rows for row in batch))
    places = {row: place for place, row in enumerate(first)}
    seen = np.zeros((ROWS, SHOWN))
    for l, batch in enumerate(rows):
        for row in batch:
            seen[places[int(row)], l] = 1 + l * BATCH // ROWS % 2
    return seen


def error(name: str, h: float) -> float:
    """The relative error of the posterior variance in the long run."""
    dynamics = strang.SGHMC(friction=FRICTION)
    period = 2 * ROWS // BATCH
    burn_in = period * int(np.ceil(60 / (h * period)))
    settings = {"batch_size": BATCH, "batch_order": name, "step_size": h, "steps": 2 * burn_in, "burn_in": burn_in}
    outcome = finite_time(strang.spell(dynamics, "chen:ABOBA"), dynamics, data=data, **settings)
    return abs(outcome.bias) * (ROWS + 1)  # the posterior variance is 1 / (ROWS + 1)


def main() -> None:
    errors = {name: [error(name, h) for h in SIZES] for name in ORDERS}
    for name, values in errors.items():
        powers = np.diff(np.log(values)) / np.diff(np.log(SIZES))
        print(
            f"{name}: {values[0]:.2g} at h = {SIZES[0]:.3g}, {values[-1]:.2g} at {SIZES[-1]:.3g}; power {powers[0]:.2f}"
        )
    figure, axes = plt.subplots(2, len(ORDERS), figsize=(8, 4.5), sharey="row", height_ratios=(1, 1))
    for (name, words), upper, lower in zip(ORDERS.items(), *axes, strict=True):
        colour = WRONG if name == "iid" else RIGHT
        palette = ListedColormap([PAPER, colour, INK])
        upper.pcolormesh(visits(name), cmap=palette, vmin=0, vmax=2, edgecolors=RULE, linewidth=0.25)
        upper.invert_yaxis()
        upper.set_title(name, color=colour, loc="center", pad=31)
        upper.text(0.5, 1.04, words, transform=upper.transAxes, ha="center", va="baseline", fontsize=8, color=INK)
        upper.set(xticks=[0, 6, 12, 18, 24], yticks=[])
        upper.tick_params(labelsize=8, length=2)
        upper.set_xlabel("step", fontsize=9)
        for other in ORDERS:
            lower.loglog(SIZES, errors[other], color=RULE, lw=1.5)
        lower.loglog(SIZES, errors[name], color=colour, lw=2.5)
        lower.set_xlabel("step size h", fontsize=9)
        lower.set_xticks([0.002, 0.006, 0.02, 0.06], ["0.002", "", "0.02", ""])
        lower.minorticks_off()
        lower.tick_params(labelsize=8, length=2)
        lower.text(0.06, 0.9, "error ∝ h" if name == "iid" else "error ∝ h²", transform=lower.transAxes,
                   color=colour, fontsize=9, weight="bold")  # fmt: skip
    axes[0, 0].set_ylabel("rows of the data", color=MUTED)
    axes[1, 0].set_ylabel("error of the\nposterior variance", color=MUTED)
    axes[1, 0].set_yticks([1e-4, 1e-3, 1e-2, 1e-1], ["0.01 %", "0.1 %", "1 %", "10 %"])
    figure.align_ylabels()
    figure.tight_layout(w_pad=0.6, h_pad=1.2)
    save(figure, "orders.png")


if __name__ == "__main__":
    main()
