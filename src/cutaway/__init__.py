"""Cutaway: an LLM inference engine with its casing open."""

__version__ = "0.1.0"
