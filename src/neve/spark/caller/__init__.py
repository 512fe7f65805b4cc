"""A Spark session that belongs to the caller."""
