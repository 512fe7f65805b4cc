"""Everything that runs on Spark. No other package imports pyspark."""
