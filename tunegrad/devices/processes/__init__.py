"""Worker processes that can be killed, what they may do, and how they are talked to."""
