"""The finals of one kernel: its best few timed again, interleaved, full size, cold; a challenger must be proved faster.

    nothing promoted yet     the default schedule is the first incumbent
    each challenger in turn  interleaved with the incumbent, then the two-sample test; ties keep the incumbent
"""
