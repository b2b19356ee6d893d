"""Native code in this process: machine facts, compile, link, threads, memory, buffer passes."""
