"""Where the fleet's numbers live: one small interface (interface.py), two homes (embedded.py, clickhouse.py)."""
