"""Scripts for developers: how numbers in the sources were made, and how they are checked."""
