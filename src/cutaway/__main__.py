"""``python -m cutaway`` is the command ``cutaway``."""

from cutaway.cli.main import main

main()
