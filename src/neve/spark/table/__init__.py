"""One Iceberg table inside the driver's JVM."""
