"""`python -m bench gpu`: all that a machine with a GPU can show, in one command."""
