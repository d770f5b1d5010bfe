"""The last hidden states of a step: what the head makes logits of, for every row and not only those whose logits are
wanted.

In: the workspace that a step of the forward has left, whose residual stream ``x`` is still there. Out: rows of ``h``.
"""

from cutaway.model.records import Model, Workspace
from cutaway.ops.cpu import norm
from cutaway.ops.cpu.arrays import Batch
from cutaway.ops.cpu.team import Team
from cutaway.ops.kernel_cache import root_jit


@root_jit
def hidden_states(team: Team, model: Model, batch: Batch, work: Workspace) -> None:
    """The last norm over all T rows: ``work.h[:T]`` [T, D]. Of an output row it is what the forward itself computed,
    to the bit.
    """
    T = batch.tokens.shape[0]
    norm(team, work.x[:T], model.output_norm[0], work.h[:T])
