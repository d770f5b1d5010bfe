"""Write docs/models.md, what Cutaway runs and what it refuses: ``python docs/make_models.py``.

In: the tables of families, formats, scalings and names in the sources. Out: the page; a test fails when it is not
current. Only what models a family has is written down here, and a family without such words is an error.
"""

from pathlib import Path

from cutaway.formats.hf_families import AS_GGUF, HF_FAMILIES
from cutaway.hub.catalogue import CATALOGUE, HUB_ALIASES
from cutaway.model.families import FAMILIES, UNSUPPORTED
from cutaway.model.positions.scalings import SCALINGS
from cutaway.ops.cpu.tiles import TILE_FORMATS
from cutaway.tokenizer.built_in_templates import BUILT_IN

PAGE = Path(__file__).parent / "models.md"

MODELS = {
    "llama": "Llama 1 to 3.3, Mistral, SmolLM and SmolLM2, TinyLlama, Yi",
    "smollm3": "SmolLM3",
    "qwen2": "Qwen2, Qwen2.5",
    "qwen3": "Qwen3, without experts",
    "gemma2": "Gemma 2",
    "gemma3": "Gemma 3, text",
    "phi3": "Phi-3 with a context of 4k; longer ones use longrope",
    "gpt2": "GPT-2",
}
"""By the name of the architecture."""
REFUSED_TYPES = {"Mixtral": "mixtral", "BERT": "bert", "Mamba": "mamba"}
REFUSED_BLOCKS = ("IQ2_XXS", "IQ3_S", "TQ1_0", "MXFP4")
REFUSED_SCALING = "longrope"
"""Examples of what is refused; one that isn't any more is an error."""
NAMED = {"llama": ("smollm",), "qwen2": ("qwen2",)}
"""How the names begin that `cutaway pull` lists, by the architecture of their files."""


def names_of(architecture: str) -> list[str]:
    """The names of the catalogue and the aliases of the hub that are of this architecture."""
    names = [*dict.fromkeys(entry.alias for entry in CATALOGUE.values()), *HUB_ALIASES]
    return [name for name in names if name.startswith(NAMED.get(architecture, "–"))]


def page() -> str:
    """The whole page."""
    named = [name for architecture in FAMILIES for name in names_of(architecture)]
    missing = (HUB_ALIASES.keys() | {entry.alias for entry in CATALOGUE.values()}) - set(named)
    run = FAMILIES.keys() | HF_FAMILIES.keys() | TILE_FORMATS.keys() | SCALINGS.keys()
    stale = missing | (MODELS.keys() ^ FAMILIES.keys())
    stale |= run & {*REFUSED_TYPES.values(), *REFUSED_BLOCKS, REFUSED_SCALING, *AS_GGUF} - FAMILIES.keys()
    if stale:
        raise ValueError(f"make_models.py says something else than the sources of: {', '.join(sorted(stale))}")
    lines = [
        "# Models",
        "",
        "<!-- Made by docs/make_models.py from the tables of families, formats and names: edit those. -->",
        "",
        "A model runs if its family and the formats of its weights are on this page. `cutaway show MODEL` says so of "
        "one without loading it, or why not. A family is a description over the one forward, "
        "[families.py](../src/cutaway/model/families.py); how to add one, [the map](map.md) says.",
        "",
        "## Families",
        "",
        "| family: the GGUF's `general.architecture` | models | known by name | folder: config.json's `model_type` |",
        "|---|---|---|---|",
    ]
    for architecture in FAMILIES:
        types = [f"`{each.model_type}`" for each in HF_FAMILIES.values() if each.architecture == architecture]
        names = [f"`{name}`" for name in names_of(architecture)]
        cells = (f"`{architecture}`", MODELS[architecture], ", ".join(names) or "–", ", ".join(types) or "–")
        lines.append(f"| {' | '.join(cells)} |")
    templates = ", ".join(f"`{name}`" for name in BUILT_IN)
    lines += [
        "",
        "Any fine-tuned model of a family runs, too. A GGUF may be split, a folder's safetensors in shards. Rotary "
        f"positions may be scaled: {', '.join(f'`{name}`' for name in SCALINGS if name != 'none')}. A chat goes "
        "through the model's own template, or by `--chat-template` through a Jinja file or a built-in one: "
        f"{templates}.",
        "",
        "## Formats of weights",
        "",
        f"In a GGUF, in any mixture: {', '.join(TILE_FORMATS)}. Files named Q4_K_M or IQ4_XS are such mixtures. In a "
        "folder: F32, F16, BF16.",
        "",
        "## What is refused",
        "",
        "Before anything is loaded, with the reason. By what a model's files ask for:",
        "",
        *(f"- {meaning} (`{key}`)" for key, (meaning, _) in UNSUPPORTED.items()),
        *(
            f"- {meaning}, in the family {family.architecture} (`{key}`)"
            for family in FAMILIES.values()
            for key, (meaning, _) in family.unsupported.items()
        ),
        f"- rotary positions scaled in another way than those above, as `{REFUSED_SCALING}`",
        "",
        "And by what its files are:",
        "",
        f"- other families, as {', '.join(REFUSED_TYPES)}",
        f"- a folder of a model that sees images ({', '.join(f'`{name}`' for name in AS_GGUF)}), of which a GGUF can "
        "be run: it has the part that reads text",
        "- weights that GPTQ, AWQ, bitsandbytes and the like quantised; take a GGUF, or the original",
        f"- other block formats of GGUF, as {', '.join(REFUSED_BLOCKS)}",
        "- pickles (.bin, .pt, .pth), which can run code",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
