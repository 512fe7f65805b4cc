"""Catalogs: where tables are found by name. Import `neve.catalogs.opening` to open one."""
