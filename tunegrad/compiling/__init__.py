"""From a kernel and a schedule to code: what the workers of a search do, and what a loaded model
does.
"""
