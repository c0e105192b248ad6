"""Limits of texts, in bytes: triggers refuse a longer one. Rows that are longer already stay as they are.

Written out in full: a revision says what the schema was when it was made, whatever the table modules say later.
"""

from alembic import op

from benchlock.migrations.frozen.triggers import TextLimits, text_limit_leftovers, text_limit_triggers

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

LIMITS = {
    "actions": (("action", 500), ("actor", 128), ("reason", 500), ("request", 500), ("target", 500)),
    "avoided": (("machine", 64),),
    "classes": (("wants", 1048576),),
    "dispatch": (("boot", 128), ("queue", 128)),
    "eligible": (("lacks", 65536), ("machine", 64)),
    "environments": (
        ("arch", 255),
        ("device", 255),
        ("framework", 128),
        ("framework_precedence", 1024),
        ("name", 128),
        ("os", 255),
        ("precedence", 1024),
    ),
    "files": (("name", 128), ("path", 4096), ("precedence", 1024)),
    "held_runs": (("owner", 128),),
    "imported_platforms": (("arch", 255), ("device", 255), ("os", 255), ("python", 255)),
    "jobs": (("failure", 255), ("owner", 128), ("reason", 4000)),
    "lease_slots": (("machine", 64),),
    "leases": (("boot", 64), ("machine", 64), ("nonce", 64), ("owner", 128), ("reason", 4000)),
    "locks": (
        ("dataset", 128),
        ("dataset_version", 128),
        ("framework", 128),
        ("framework_version", 128),
        ("image", 128),
        ("image_version", 128),
        ("model", 128),
        ("model_version", 128),
        ("request", 255),
        ("text", 4194304),
    ),
    "machines": (
        ("boot", 64),
        ("draining", 4000),
        ("facts", 16384),
        ("faulty", 65536),
        ("held", 4000),
        ("id", 64),
        ("owner", 128),
    ),
    "manifests": (
        ("authored", 16777216),
        ("content", 16777216),
        ("name", 128),
        ("precedence", 1024),
        ("sources", 16777216),
    ),
    "platforms": (("arch", 255), ("device", 255), ("name", 128), ("os", 255), ("precedence", 1024), ("python", 255)),
    "record_chain": (("key", 2048),),
    "requirements": (("name", 128), ("precedence", 1024), ("range", 4000), ("required_name", 128)),
    "run_batch_metrics": (("name", 255), ("unit", 255)),
    "run_blobs": (("role", 64),),
    "run_ends": (("details", 1048576), ("failure_class", 255), ("failure_message", 16384), ("timings", 65536)),
    "run_metrics": (("name", 255), ("unit", 255)),
    "run_packages": (("name", 255), ("version", 255)),
    "runs": (("host", 65536), ("platform", 16384), ("process", 16384)),
    "tokens": (("created_by", 128), ("name", 128), ("scopes", 16384)),
    "versions": (("framework", 128), ("framework_version", 128), ("name", 128), ("precedence", 1024), ("version", 128)),
    "yanks": (("name", 128), ("precedence", 1024), ("reason", 4000)),
}


def upgrade() -> None:
    for table, columns in LIMITS.items():
        for statement in text_limit_triggers(TextLimits(table, columns), op.get_context().dialect.name).values():
            op.execute(statement)


def downgrade() -> None:
    for table, columns in LIMITS.items():
        for statement in text_limit_leftovers(TextLimits(table, columns), op.get_context().dialect.name):
            op.execute(statement)
