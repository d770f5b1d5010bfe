"""Elementary functions in decimal arithmetic, by their series: right to more digits than any binary format holds.

In: decimals. Out: decimals, to about 40 digits.
"""

import functools
from decimal import Decimal, localcontext

DIGITS = 60


@functools.cache
def pi() -> Decimal:
    """π by Machin's formula: 16 arctan(1/5) - 4 arctan(1/239)."""

    def arctan_of_inverse(n: int) -> Decimal:
        total = term = Decimal(1) / n
        k = 1
        while abs(term) > Decimal(10) ** -DIGITS:
            term /= -n * n
            k += 2
            total += term / k
        return total

    with localcontext() as context:
        context.prec = DIGITS
        return 16 * arctan_of_inverse(5) - 4 * arctan_of_inverse(239)


def cos_sin(x: Decimal) -> tuple[Decimal, Decimal]:
    """Cosine and sine of x radians by Taylor's series around 0, after taking whole turns away."""
    with localcontext() as context:
        context.prec = DIGITS
        turn = 2 * pi()
        x -= (x / turn).to_integral_value() * turn
        cosine, sine, term, n = Decimal(0), Decimal(0), Decimal(1), 0
        while abs(term) > Decimal(10) ** -45:
            if n % 2 == 0:
                cosine += term * (-1) ** (n // 2)
            else:
                sine += term * (-1) ** (n // 2)
            n += 1
            term = term * x / n
        return cosine, sine
