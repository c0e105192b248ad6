"""Isolated calls: functions of this project in child processes with limits of memory, time and files."""
