"""What a kernel is fed with, what it must give, and whether it did."""
