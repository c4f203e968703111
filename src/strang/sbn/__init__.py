"""Sigmoid belief networks: fitted to images, scored by annealed importance sampling."""

from typing import TYPE_CHECKING

from strang.util.lazy import lazy

if TYPE_CHECKING:
    from strang.sbn.fitting import fit
    from strang.sbn.model import SBN
    from strang.sbn.scoring import Score, exact, log_likelihood, paired, score

__all__ = ["SBN", "Score", "exact", "fit", "log_likelihood", "paired", "score"]
_HOMES = {"SBN": "strang.sbn.model", "fit": "strang.sbn.fitting"}
__getattr__, __dir__ = lazy(__name__, dict.fromkeys(__all__, "strang.sbn.scoring") | _HOMES)
