"""What people see: the same values as text, as a page, or as a list. Surfaces call it; it reads values and computes nothing."""
