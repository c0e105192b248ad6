"""A matrix over the shelf of ``tests.support.resolution.locks``."""

from typing import Final

MATRIX: Final = """
schema: 1
kind: matrix
name: digits-grid
request:
  dataset: {name: digits, version: ">=1.0 <2", split: test}
  hardware: {os: linux, arch: amd64, device: cpu}
  limits: {time: 10m, memory: 2GiB, cpus: 1, processes: 256}
  metrics: [top1, latency]
  seed: 7
axes:
  model:
    old: {name: digits, version: "~1.0"}
    new: {name: digits, version: "~1.1"}
  scenario:
    short: {name: single_stream, min_queries: 662, min_duration: 1s, warmup: 8}
    long: {name: single_stream, min_queries: 1000, min_duration: 1s, warmup: 8}
exclude: [{model: old, scenario: long}]
repeat: 2
seed: 3
"""
