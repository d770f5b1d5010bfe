"""Invented ledgers, for what is worked out from them.

In: the seconds of a few operations. Out: a ``Ledger``.
"""

from collections.abc import Mapping

from cutaway.audit.ledger import Ledger, LedgerRow
from cutaway.audit.limits import MachineLimits

WEIGHT_BYTES = {"qkv": 1_000_000, "logits": 3_000_000}
KV_BYTES = 100  # of a position
OPERATIONS = 4_000_000  # of a product, for each row


def invented_ledger(
    limits: MachineLimits,
    rows: int,
    context: int,
    *,
    qkv: float,
    logits: float,
    attention: float,
    other: float,
    closed: float = 1.0,
    bounds: Mapping[str, str] | None = None,
) -> Ledger:
    """A step of two products, attention and an addition. closed: seconds of the closed step; bounds: of the products,
    "memory" where none is named.
    """

    def product(name: str, seconds: float) -> LedgerRow:
        bound = (bounds or {}).get(name, "memory")
        return LedgerRow(name, 1, "", OPERATIONS * rows, 0, WEIGHT_BYTES[name], 0, 0, seconds, bound, seconds / 2)

    return Ledger(
        rows,
        context,
        (
            product("qkv", qkv),
            LedgerRow("attention", 1, "", 0, 1, 0, KV_BYTES * context * rows, 0, attention, "memory", attention / 2),
            LedgerRow("ffn_residual", 1, "", 0, 1, 0, 0, 8, other, "memory", other / 2),
            product("logits", logits),
        ),
        (closed,),
        limits,
    )
