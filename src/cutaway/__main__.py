"""The command ``cutaway``, also as ``python -m cutaway``.

In: arguments. Out: an exit code. Loading the command line takes a while; Ctrl-C in it ends the process as any program
that handles no signals, without a traceback.
"""

import signal


def main() -> None:
    """Load the command line, run it and exit."""
    python_s = signal.getsignal(signal.SIGINT)
    if python_s is signal.default_int_handler:  # else somebody ignores the signal, and so does this
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cutaway.cli.main import main as run

    signal.signal(signal.SIGINT, python_s)
    run()


if __name__ == "__main__":
    main()
