"""The same ids and the same bits of log-probabilities in every process and with either set of instructions."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import sample_in_child

from cutaway.ops.numerics import NUMERICS_VERSION
from cutaway.ops.simd import LOWERING
from support.machines import avx2_environment, subprocess_environment

GOLDEN = json.loads((Path(__file__).parent / "fixtures" / "sampler_digests.json").read_text())


@pytest.mark.parametrize("avx2", [True, False], ids=["avx2", "this processor"])
def test_the_digests_of_many_rows(avx2: bool) -> None:
    """Plain rows, and rows with all steps of which every intermediate value counts; the child compares open and closed.

    If this fails and a change of bits was meant, raise NUMERICS_VERSION and record the new digests.
    """
    done = subprocess.run(
        [sys.executable, str(Path(sample_in_child.__file__))],
        env=avx2_environment() if avx2 else subprocess_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    lowering, plain, adjusted = done.stdout.split()
    assert lowering == ("avx2" if avx2 else LOWERING)
    assert {"numerics_version": NUMERICS_VERSION, "plain": plain, "adjusted": adjusted} == GOLDEN
