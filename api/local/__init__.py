"""The registry in a folder of this machine: its database, store, services, upgrades and backups."""
