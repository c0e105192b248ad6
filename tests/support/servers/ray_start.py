"""``ray`` whose addresses stay on the loopback: Ray itself replaces 127.0.0.1 by another address of the host."""

import sys

import ray._private.services
from ray.scripts.scripts import main

ray._private.services.resolve_ip_for_localhost = lambda host: host  # no setting of `ray start` does it

if __name__ == "__main__":
    sys.argv[0] = "ray"
    main()  # type: ignore[no-untyped-call]
