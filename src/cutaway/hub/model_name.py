"""A model's name on the Hugging Face hub, taken apart.

In: ``owner/repo``, ``owner/repo:Q4_K_M``, ``owner/repo:file.gguf``, each also behind ``hf:``. Out: the repository and
what is wanted of it; or None where the text has another shape.
"""

import re
from dataclasses import dataclass

PREFIX = "hf:"

_ADDRESS = re.compile(
    r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/(?P<repository>[^/?#]+/[^/?#]+)"
    r"(?:/(?:blob|resolve)/[^/?#]+/(?P<file>[^?#]+\.gguf))?(?:[/?#].*)?",
    re.IGNORECASE | re.DOTALL,
)
_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_NAME = re.compile(rf"(?P<repository>(?:{_PART}/)?{_PART})(?::(?P<wanted>[^:\s]+))?")


@dataclass(frozen=True)
class HubName:
    """A repository, and the quantisation or file that is wanted of it; None leaves the choice to ``choose_files``."""

    repository: str
    wanted: str | None = None

    def __str__(self) -> str:
        return self.repository if self.wanted is None else f"{self.repository}:{self.wanted}"


def parse_hub_name(name: str) -> HubName | None:
    """The name's parts, or None. Without ``hf:`` it needs an owner, since ``gpt2`` alone could mean anything."""
    match = _NAME.fullmatch(name.removeprefix(PREFIX).removeprefix("//"))
    if match is None or not (name.startswith(PREFIX) or "/" in match["repository"]):
        return None
    return HubName(match["repository"], match["wanted"])


def hub_name_in_address(address: str) -> HubName | None:
    """What to write in place of a page's address on the hub: of a repository, or of a GGUF file in one."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return None
    return parse_hub_name(match["repository"] + (f":{match['file']}" if match["file"] else ""))
