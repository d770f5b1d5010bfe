"""The tap of the sampler: where ``choose`` shows a row after each declared step.

In: the step's name and the values as it left them. Out: nothing. In the closed run a tap does nothing and costs
nothing; the open run puts a Python function in its place.
"""

from cutaway.ops.simd import no_row_tap

tap = no_row_tap

__all__ = ["tap"]
