"""Tables that exist only as metadata: written, compacted and queried over weeks of simulated time. See `bench/simulate.py`."""
