"""The tap of the sampler: where ``choose`` shows a row after each declared step.

In: the step's name and the values as it left them. Out: nothing. In the closed run a tap does nothing and costs
nothing; the open run puts a Python function in its place. An intrinsic, as the forward's tap is.
"""

from typing import Any

from numba.core import types

from cutaway.ops.simd.rows import intrinsic


@intrinsic
def tap(typing_context: Any, name: Any, values: Any) -> Any:
    """The closed run's tap: nothing."""
    return types.none(name, values), lambda context, builder, signature, arguments: context.get_dummy_value()
