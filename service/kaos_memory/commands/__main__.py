"""`python -m kaos_memory.commands` is `kaos-memory`."""

from kaos_memory.commands.app import main

if __name__ == "__main__":
    main()
