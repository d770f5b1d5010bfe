"""Weights of small models by Hugging Face's names: the same numbers for transformers and for the folders that we read.

In: a tensor's name and shape, the model's type. Out: float32 values that bfloat16 holds. All come from SHAKE-256, so
that they are the same with any version of NumPy.
"""

import hashlib

import numpy as np
import numpy.typing as npt

PROMPTS = [[(7 * i * i + (31 + number) * i + number) % 67 for i in range(4 + 3 * number)] for number in range(10)]
"""Ids of ten prompts of 4 to 31 tokens."""
LESS_ONE = ("gemma2", "gemma3_text")  # their norms' weights are stored less 1


def bfloat16_values(name: str, shape: tuple[int, ...], model_type: str) -> npt.NDArray[np.float32]:
    """A matrix with a mean square of about 1 / columns, a norm's weight around 1, or a bias around 0."""
    count = int(np.prod(shape))
    raw = np.frombuffer(hashlib.shake_256(f"{model_type}/{name}".encode()).digest(2 * count), "<u2")
    values = raw / 65535.0 - 0.5
    if len(shape) == 2:
        values = values * (12 / shape[-1]) ** 0.5
    elif name.endswith(".weight") and model_type not in LESS_ONE:
        values = values + 1
    bits = np.ascontiguousarray(values.astype("<f4")).view("<u4") & 0xFFFF0000
    return np.asarray(bits.view("<f4").reshape(shape), np.float32)
