"""What a rewrite does: selection, strategies, packing, kernels, cost, work orders, proof. Pure."""
