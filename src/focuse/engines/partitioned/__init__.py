"""Entity tables that are partitioned on disk."""
