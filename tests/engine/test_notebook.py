"""``LLM`` in a notebook: a kernel of its own runs the cells, with its event loop running and its own output streams."""

import json
import sys
from pathlib import Path

import pytest

from support.patience import SECONDS

CELLS = (
    "from cutaway import LLM, SamplingParams\nllm = LLM('smollm2', threads=2, max_model_len=256)",
    "params = SamplingParams(temperature=0.8, seed=7, max_tokens=8, ignore_eos=True)\n"
    "whole = [o.outputs[0].text for o in llm.generate(['One, two,', 'The sea is', 'A B C'], params)]",
    "streamed = ''.join(delta.text for delta in llm.stream('The sea is', params))\nprint(streamed == whole[1])",
    "stream = llm.stream('The sea is', params)\nnext(stream)\nraise KeyboardInterrupt",
    "print(llm.generate('The sea is', params)[0].outputs[0].text == whole[1])",
    "import asyncio\nprint(asyncio.get_event_loop().is_running())\nllm.close()",
)


def test_cells_of_a_notebook(smollm2_path: Path, tmp_path: Path) -> None:
    reason = "nbclient and ipykernel are missing; .venv/bin/pip install -e '.[dev]' brings them"
    nbclient, nbformat = pytest.importorskip("nbclient", reason=reason), pytest.importorskip("nbformat", reason=reason)
    pytest.importorskip("ipykernel", reason=reason)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    notebook.cells[3].metadata["tags"] = ["raises-exception"]
    kernels = tmp_path / "kernels" / "here"
    kernels.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernels / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "here", "language": "python"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(tmp_path))
        nbclient.NotebookClient(notebook, timeout=SECONDS, kernel_name="here").execute()
    said = [
        "".join(out.get("text", "") for out in cell.outputs if out.get("name") == "stdout") for cell in notebook.cells
    ]
    assert said == ["", "", "True\n", "", "True\n", "True\n"]
    assert notebook.cells[3].outputs[0]["ename"] == "KeyboardInterrupt"
