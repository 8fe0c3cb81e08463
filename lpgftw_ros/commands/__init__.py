"""One module per `lpgftw` sub-command, each with `add_arguments(parser)` and `run(args)`."""
