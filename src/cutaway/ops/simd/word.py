"""A word of the vocabulary by its name: what kernels are written with, and what Numba finds behind it.

In: the module that defines the word, and its name. Out: an object that a kernel can name. The definition is looked up
when a kernel that uses it is compiled: a process that finds its kernels in the cache loads neither Numba nor LLVM.
"""

import importlib
from typing import Any


class Word:
    """Stands for an intrinsic of Numba in the sources of kernels."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self.__name__ = module, name

    def __call__(self, *operands: Any) -> Any:
        """Words exist in compiled code alone."""
        raise NotImplementedError(f"{self.__name__} is a word for compiled code: it can't be called from Python.")

    @property
    def _numba_type_(self) -> Any:
        from numba.core.registry import cpu_target

        definition = getattr(importlib.import_module(self._module), self.__name__)
        cpu_target.typing_context.refresh()  # Numba hears of what was defined since it began to compile
        return cpu_target.typing_context.resolve_value_type(definition)

    def __repr__(self) -> str:
        return f"<word {self.__name__}>"
