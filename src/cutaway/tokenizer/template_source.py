"""The source of a chat template, before anything reads it: how long it may be, and what to do about an unsound one."""

from typing import Final

MAX_SOURCE: Final = 262_144  # characters; the longest known ones have 20,000
UNSOUND: Final = "use a model with a sound template"
