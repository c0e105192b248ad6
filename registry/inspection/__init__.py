"""What publishing checks of the bytes themselves, as far as it can without a framework."""
