"""The order of rows: sorted by columns, or along a curve through all of them. Arrow arrays in, keys and indices out.

Nothing here reads or writes: the arrow kernel orders what it holds in memory, and Spark tasks make keys batch by batch.
"""
