"""The service: observes tables, decides by `scheduling`, carries jobs out. `service.serve` runs all of it in one process."""
