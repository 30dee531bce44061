"""The experiments of the FocusE paper: its models are trained, and its tables and figures are made from the results."""
