"""Neve keeps Apache Iceberg tables fast and cheap. Importing it is cheap too: nothing heavy is loaded before it is needed."""
