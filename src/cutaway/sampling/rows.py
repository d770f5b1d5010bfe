"""Several rows of logits in, a token for each out: the members of a team sample them side by side.

In: rows, a team, a ``SamplerRoom``. Out: a result for each row, or the error that it met, which is its alone. A row's
noise is a function of its key, and each member has its own room: the number of threads changes no bit.
"""

from collections.abc import Sequence

from cutaway.errors import CutawayError
from cutaway.ops.cpu.calls import call_shared, calls_of_members
from cutaway.ops.cpu.threads import ThreadTeam, float_environment
from cutaway.sampling.choose import Outcome, choose_compiled
from cutaway.sampling.row import SamplerScratch
from cutaway.sampling.sampler import Row, SampleResult, arguments_of, result_of


class SamplerRoom:
    """For each member of a team, room for sampling one row at a time and for the results of all its rows."""

    def __init__(self, V: int, members: int) -> None:
        """V: ids of the vocabulary. The system puts memory behind all of it now, and not in the step that uses it."""
        self._of_members = [[SamplerScratch.allocate(V)] for _ in range(members)]
        for (scratch,) in self._of_members:
            for array in scratch:
                array.fill(0)

    def scratch(self, member: int = 0, number: int = 0) -> SamplerScratch:
        """For the row of this number among the member's own."""
        own = self._of_members[member]
        while len(own) <= number:
            own.append(own[0].with_own_results())
        return own[number]


def sample_rows(rows: Sequence[Row], team: ThreadTeam, room: SamplerRoom) -> list[SampleResult | CutawayError]:
    """``sample_row`` of each; room: of as many members as the team has."""
    if len(rows) == 1 or team.size == 1:  # nothing to share: the others need not be woken
        with float_environment():
            return [_result(choose_compiled(*arguments_of(row, room.scratch())), row, room.scratch()) for row in rows]
    members = calls_of_members(team, len(rows))
    scratches = [room.scratch(member, number) for member, own in enumerate(members) for number in range(len(own))]
    calls = [arguments_of(row, scratch) for row, scratch in zip(rows, scratches, strict=True)]
    outcomes = call_shared(choose_compiled, calls, team)
    return [_result(*each) for each in zip(outcomes, rows, scratches, strict=True)]


def _result(outcome: Outcome, row: Row, scratch: SamplerScratch) -> SampleResult | CutawayError:
    try:
        return result_of(outcome, row, scratch)
    except CutawayError as error:
        return error
