"""The record of what an engine computes: written as it runs, replayed to the bit, a receipt for each request."""
