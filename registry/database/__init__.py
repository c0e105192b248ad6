"""The SQL database: engines, transactions, triggers, the chain of records and integrity checks."""
