"""Cutaway against other engines: one machine, one run, interleaved round by round.

In: a GGUF file and the interpreter of an environment that has the peers. Out: a table, and with ``--json`` everything
behind it: machine, versions, settings, the figures of every round. Each engine lives in a process of its own and waits
on a pipe while another one works, so that memory and threads do not mix. What an engine can't do is shown with the
reason.

    python -m venv peers
    CMAKE_ARGS=-DGGML_NATIVE=ON peers/bin/pip install --no-binary llama-cpp-python llama-cpp-python
    peers/bin/pip install openvino-genai torch transformers accelerate gguf
    python benchmarks/peers.py MODEL.gguf --peer-python peers/bin/python --json peers.json
"""
