"""Native code in this process: facts of this machine, compile, link, threads, memory, passes over
whole buffers.
"""
