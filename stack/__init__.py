"""Real servers for tests, as plain processes: `python -m stack up|down|status|logs|env [NAME...]`.

The tests' fixtures (`stack.pytest_plugin`) and the Makefile call it; the product never does. What it starts it can name
by pid and birth, and stops; what it did not start it never touches.
"""
