"""OpenVINO GenAI on the CPU: its ``LLMPipeline``, which reads GGUF files itself."""

import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from peers.contract import CannotRunError


class OpenVino:
    """``LLMPipeline.generate`` on token ids. One sequence is watched by a streamer; of several, which can't be
    streamed, the pipeline's own metrics say when tokens came.
    """

    def __init__(self, model: Path, threads: int, positions: int) -> None:
        import numpy as np
        import openvino
        import openvino_genai

        self._numpy, self._openvino, self._api = np, openvino, openvino_genai
        self._pipeline = openvino_genai.LLMPipeline(str(model), "CPU", INFERENCE_NUM_THREADS=threads)

        class Clock(openvino_genai.StreamerBase):
            """When how many tokens had come."""

            def __init__(self) -> None:
                super().__init__()
                self.arrivals: list[tuple[float, int]] = []
                self.received = 0
                self.start = time.perf_counter()

            def write(self, tokens: Any) -> Any:
                self.received += 1 if isinstance(tokens, int) else len(tokens)
                self.arrivals.append((time.perf_counter() - self.start, self.received))
                return openvino_genai.StreamingStatus.RUNNING

            def end(self) -> None: ...

        self._clock = Clock

    def info(self) -> dict[str, str]:
        return {"python": platform.python_version()} | {n: version(n) for n in ("openvino", "openvino-genai")}

    def measure(self, prompts: list[list[int]], new_tokens: int) -> list[tuple[float, int]]:
        ids = self._numpy.array(prompts, self._numpy.int64)
        tensor, mask = self._openvino.Tensor(ids), self._openvino.Tensor(self._numpy.ones_like(ids))
        inputs = self._api.TokenizedInputs(tensor, mask)
        config = self._api.GenerationConfig(max_new_tokens=new_tokens, ignore_eos=True, do_sample=False)
        if len(prompts) == 1:
            clock = self._clock()
            self._pipeline.generate(inputs, config, clock)
            arrivals: list[tuple[float, int]] = clock.arrivals
        else:
            arrivals = self._from_metrics(self._pipeline.generate(inputs, config), len(prompts))
        received = arrivals[-1][1] if arrivals else 0
        if received != len(prompts) * new_tokens:
            raise CannotRunError(f"{received} tokens came, {len(prompts) * new_tokens} were asked for")
        return arrivals

    def _from_metrics(self, result: Any, sequences: int) -> list[tuple[float, int]]:
        """A step brings a token for each sequence; times are in ms from an arbitrary moment, the first's duration in
        microseconds.
        """
        raw = result.perf_metrics.raw_metrics
        first, times = raw.m_times_to_first_token[0] / 1e6, raw.m_new_token_times
        return [(first + (at - times[0]) / 1e3, sequences * (step + 1)) for step, at in enumerate(times)]
