"""A fleet of machines that takes jobs from the real queue, in virtual time and with faults."""
