"""The version of the numerical contract: which bits a step gives.

The contract covers all that decides a bit of the logits, and which token is drawn from them: the block formats'
values, the quantisation of activations, the order of every sum and product in ``ops.cpu``, the polynomials for exp,
log, sine and cosine, attention's grid of tiles and its tree, the rounding of keys and values to the cache's type, the
inverse frequencies, and the sampler's noise, filters and sums. For one version the same file and token ids give the
same bits on every supported processor, with any batch, chunking, pages and threads. A change of any bit needs a new
number; a test holds the digests of fixed runs.
"""

from typing import Final

NUMERICS_VERSION: Final = 2
