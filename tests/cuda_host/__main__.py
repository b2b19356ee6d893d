"""``tunegrad`` with the device ``cuda-host``: ``python -m tests.cuda_host COMMAND ...``."""

from tunegrad.cli import main

if __name__ == "__main__":
    main()
