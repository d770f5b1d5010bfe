"""Whether the tests that take minutes run, too: ``CUTAWAY_LONG_TESTS=1 pytest``, or ``make long``."""

import os

LONG = os.environ.get("CUTAWAY_LONG_TESTS") == "1"
