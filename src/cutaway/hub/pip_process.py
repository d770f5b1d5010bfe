"""The script that the pip child process executes: pip, tied to the life of the process that started it.

The command line of pip goes in as the arguments. Standard input is a pipe that nobody writes to: its end
means that the parent has died, even by SIGKILL, and then this process leaves at once instead of downloading
on for nobody.
"""

import os
import runpy
import sys
import threading


def leave_with_parent() -> None:
    """Wait for the end of standard input, and leave."""
    os.read(0, 1)
    os._exit(1)


if __name__ == "__main__":
    # Python puts a script's folder in front of the import path, where our modules could shadow pip's imports.
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    threading.Thread(target=leave_with_parent, daemon=True).start()
    runpy.run_module("pip", run_name="__main__", alter_sys=True)
