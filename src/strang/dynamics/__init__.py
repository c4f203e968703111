"""Itô diffusions with their numbers, states and exactly solvable pieces; one file each."""

from .sghmc import SGHMC as SGHMC
from .sgld import SGLD as SGLD
from .sgnht import SGNHT as SGNHT
from .sgrhmc import SGRHMC as SGRHMC
from .sgrld import SGRLD as SGRLD
