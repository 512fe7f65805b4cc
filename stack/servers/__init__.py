"""One module per server, each with what it takes to install, start and check it."""
