"""The parity oracle: every operation of a real run beside its definition in float64, and the whole run beside it."""
