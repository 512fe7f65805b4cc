"""Java, jars and the Spark session."""
