"""What training minimizes: the FocusE layer, losses, regularizers and negative sampling."""
