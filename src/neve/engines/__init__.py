"""Engines that do the heavy work; each is a package of its own and imports no other adapter."""
