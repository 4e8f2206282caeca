"""Crash tests: real processes that are killed, frozen and stopped, and a disk that loses power or runs full."""
