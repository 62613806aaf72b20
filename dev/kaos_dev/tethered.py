"""Runs a command that dies with the process that started it: `tethered.py <parent> <command>...`.

A demo that is killed cannot end its service, which would then keep its port for ever. The kernel
can: it sends the parent-death signal, whatever became of the parent. It is asked for here, in a
program that then becomes the command by `exec`, because the signal survives that while Python's
`preexec_fn` is unsafe beside threads, and because the service itself is a product's that must
outlive any shell. SIGKILL, since nobody would be left to insist after a SIGTERM.

Linux counts the *thread* that started the command as its parent: start it from one that stays.
Run by its path, without `site`: it takes 20 ms.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(parent: int, command: list[str]) -> None:
    """Become the command, unless the parent is gone already."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_PDEATHSIG")
    if os.getppid() == parent:
        os.execv(command[0], command)  # noqa: S606 - there is no shell on purpose


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
