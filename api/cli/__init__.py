"""The command line: parse words, call the rooms below, print what they return."""
