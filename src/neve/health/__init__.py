"""How a table is: score, findings, ranking, overlap, workload, and what queries read. Pure."""
