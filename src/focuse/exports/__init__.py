"""Out to other tools: embeddings with their names, and links with what is said of them."""
