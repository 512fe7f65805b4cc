"""The story: inspect, plan, execute, commit, verify, record. One file per stage."""
