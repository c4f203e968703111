"""How all pictures look: opaque, for white pages and dark ones, in colours that the colour-blind can tell apart."""

from pathlib import Path

import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent
INK, MUTED, RULE, PAPER, FILL = "#1c2027", "#59616e", "#dcdfe5", "#ffffff", "#c9ced6"
WRONG, RIGHT = "#d55e00", "#0072b2"  # vermilion and blue, of Okabe and Ito
MAX_BYTES = 200_000

plt.rcParams.update(
    {
        "figure.facecolor": PAPER, "axes.facecolor": PAPER, "savefig.facecolor": PAPER, "text.color": INK,
        "axes.edgecolor": MUTED, "axes.labelcolor": INK, "xtick.color": MUTED, "ytick.color": MUTED,
        "font.family": "DejaVu Sans", "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold",
        "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8,
    }
)  # fmt: skip


def save(figure: plt.Figure, name: str, dpi: int = 200) -> None:
    """Writes the picture beside its script, with nothing in it that differs from run to run."""
    path = FOLDER / name
    figure.savefig(path, dpi=dpi, metadata={"Software": None}, pil_kwargs={"optimize": True})
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise SystemExit(f"{path.name} has {size:,} bytes; pictures here have at most {MAX_BYTES:,}.")
    print(f"{path.name}: {size:,} bytes")
