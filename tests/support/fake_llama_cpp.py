"""A stand-in for llama-cpp-python's C API, for tests of what drives it: a "model" whose next token is the sum of the
sequence's ids.

In: a folder. Out: a module ``llama_cpp`` and its package's metadata in it. Like the real one it refuses positions that
don't follow each other and contexts that are too short; ``STEPS`` has every batch.
"""

from pathlib import Path

SOURCE = """
from types import SimpleNamespace

MODULUS = 97
STEPS = []  # of each llama_decode: [(id, position, sequence, whether the next is wanted)]
CONTEXTS = []
DEFAULT_CONTEXT = dict(n_ctx=0, n_seq_max=1, n_batch=0, n_ubatch=0, n_threads=0, n_threads_batch=0, kv_unified=None,
                       flash_attn_type=-1)

def llama_log_callback(function):
    return function

def llama_log_set(callback, data):
    print("a library's chatter on standard output", flush=True)

def llama_backend_init():
    pass

def llama_print_system_info():
    return b" FAKE = 1 | "

def llama_model_default_params():
    return SimpleNamespace()

def llama_model_load_from_file(path, params):
    return None if b"unreadable" in path else SimpleNamespace(path=path)

def llama_context_default_params():
    return SimpleNamespace(**DEFAULT_CONTEXT)

def llama_init_from_model(model, params):
    context = SimpleNamespace(params=params, sequences={}, chosen={}, freed=False)
    CONTEXTS.append(context)
    return context

def llama_free(context):
    context.freed = True

def llama_get_memory(context):
    return context

def llama_memory_clear(context, data):
    context.sequences.clear()

def llama_memory_seq_rm(context, sequence, begin, end):
    assert end == -1
    del context.sequences.setdefault(sequence, [])[begin:]
    return True

def llama_batch_init(n_tokens, embd, n_seq_max):
    def row():
        return [None] * n_tokens
    return SimpleNamespace(
        n_tokens=0, token=row(), pos=row(), logits=row(), n_seq_id=row(), seq_id=[[None] for _ in range(n_tokens)]
    )

def llama_decode(context, batch):
    assert not context.freed
    if batch.n_tokens > context.params.n_batch:
        return -1
    STEPS.append([])
    context.chosen.clear()
    for row in range(batch.n_tokens):
        assert batch.n_seq_id[row] == 1
        sequence = batch.seq_id[row][0]
        ids = context.sequences.setdefault(sequence, [])
        room = context.params.n_ctx // context.params.n_seq_max
        if not 0 <= sequence < context.params.n_seq_max or batch.pos[row] != len(ids) or len(ids) >= room:
            return 1
        ids.append(batch.token[row])
        STEPS[-1].append((batch.token[row], batch.pos[row], sequence, bool(batch.logits[row])))
        if batch.logits[row]:
            context.chosen[row] = sum(ids) % MODULUS
    return 0

def llama_sampler_chain_default_params():
    return None

def llama_sampler_chain_init(params):
    return []

def llama_sampler_init_greedy():
    return "greedy"

def llama_sampler_chain_add(chain, sampler):
    chain.append(sampler)

def llama_sampler_sample(chain, context, row):
    assert chain == ["greedy"]
    return context.chosen[row]
"""


def write_fake_llama_cpp(folder: Path) -> Path:
    """The folder, to be put on a process's path."""
    metadata = folder / "llama_cpp_python-0.0.1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: llama_cpp_python\nVersion: 0.0.1\n")
    (folder / "llama_cpp.py").write_text(SOURCE)
    return folder
