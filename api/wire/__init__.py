"""What travels between a server and its clients: the same types write it and read it."""
