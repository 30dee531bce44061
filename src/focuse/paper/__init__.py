"""The paper again: its cells, trained, and its tables and figures made of them."""
