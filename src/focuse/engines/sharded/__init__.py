"""Entity tables that are sharded over several processes."""
