"""Everything that touches Spark and its JVM. Importing this package imports neither pyspark nor starts anything."""
