"""What ran, where, and how it was measured: images, runner, harness, records, statistics."""
