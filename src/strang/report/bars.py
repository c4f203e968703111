"""Groups of bars with their uncertainty, as a PNG of small pictures side by side."""

import textwrap
from pathlib import Path

from strang.report.figures import COLOURS, canvas
from strang.report.panels import Bars
from strang.util.files import replacing

MAX_COLUMNS = 4


def png(groups: list[Bars], path: Path, dpi: int = 144) -> None:
    """Draws each group on axes of its own; whiskers are ± one standard deviation."""
    columns = min(MAX_COLUMNS, len(groups))
    rows = -(-len(groups) // columns)
    height = 0.55 + 0.17 * max(len(group.bars) for group in groups)
    with canvas(2.7 * columns, height * rows) as figure:
        for axes, group in zip(figure.subplots(rows, columns, squeeze=False).flat, groups, strict=False):
            places, values = range(len(group.bars)), [bar.value for bar in group.bars]
            whiskers = [bar.whisker for bar in group.bars]
            axes.barh(places, values, xerr=whiskers, color=COLOURS[0], alpha=0.7, error_kw={"lw": 1.1})
            axes.set_yticks(places, [textwrap.shorten(bar.label, 20, placeholder="…") for bar in group.bars])
            axes.invert_yaxis()
            axes.set_xlim(0, 1.02 * group.end)
            axes.locator_params(axis="x", nbins=4)
            axes.set_title(group.title, fontsize=8)
        for axes in list(figure.axes)[len(groups) :]:
            axes.set_visible(False)
        with replacing(path) as temporary:
            figure.savefig(temporary, format="png", dpi=dpi, metadata={"Software": None})
