"""Positions: how a model tells its tokens' places apart. The pieces are interchangeable, with one interface.

In: what a piece needs (a base and a scaling, a file's table, sizes). Out: ``Positions``: rows that are added to the
embedding, tables of rotary angles that turn query and key heads. The forward reads both; either may be empty.

    learned       rows that the file holds (GPT-2)
    sinusoidal    rows computed from sines (Vaswani et al. 2017)
    rotary        tables of angles (Su et al. 2021), each with a scaling from ``scalings.SCALINGS``

Tables are computed in decimal arithmetic, since libm's results differ between machines in their last bit.
"""

from cutaway.model.positions.absolute import learned, sinusoidal
from cutaway.model.positions.frequencies import inverse_frequencies
from cutaway.model.positions.rotary import Rope, rotary
from cutaway.model.positions.scalings import SCALINGS
from cutaway.model.positions.tables import Positions

__all__ = ["SCALINGS", "Positions", "Rope", "inverse_frequencies", "learned", "rotary", "sinusoidal"]
