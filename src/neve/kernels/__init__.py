"""How files are rewritten: bytes and Arrow in, bytes out. No Spark, no catalog client, no storage of their own.

A kernel gets open sources and sinks (`streams`), so the same code runs in a Spark task, in a process of its own and in a test.
"""
