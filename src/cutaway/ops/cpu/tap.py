"""The tap: where the forward shows what it has just computed.

In: the operation's name, its layer (-1 outside the layers) and the array it wrote. Out: nothing. In the closed run a
tap does nothing and costs nothing; the open run puts a Python function in its place; the timed run puts ``clock_tap``
there, which appends the time-stamp counter to the member's clock.
"""

from cutaway.ops.simd import clock_tap, no_tap

tap = no_tap

__all__ = ["clock_tap", "tap"]
