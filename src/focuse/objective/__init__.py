"""The training objective: the FocusE layer, losses, regularizers and negative sampling."""
