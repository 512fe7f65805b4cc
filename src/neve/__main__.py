"""`python -m neve` is `neve`."""

from neve.cli import main

main()
