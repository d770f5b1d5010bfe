"""What tests of grammars share: small vocabularies, and no deadline where the first example compiles."""

from typing import Any

import pytest
from hypothesis import settings

from cutaway.grammar.grammars import Grammars
from support.small_vocabulary import JSON_BYTES

settings.register_profile("compiling", deadline=None)
settings.load_profile("compiling")


@pytest.fixture(scope="session")
def grammars() -> Grammars:
    """Over a vocabulary of all bytes, and pieces of JSON."""
    vocabulary: Any = JSON_BYTES
    return Grammars(vocabulary)
