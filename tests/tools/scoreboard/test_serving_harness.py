"""What the public harness asks of its servers: settings there are, of systems there are."""

from accelsim.catalog.engines import ServingEngine
from accelsim.scoreboard.data_folder import published

_HARNESS = published("serving_systems")["harness"]
_OWN = {"kv_format", "memory_fraction", "batch_tokens", "requests_per_user"}
_WHERE = {"system", "precision", "lengths", "own_attention", "from_users", "tp"}


def test_the_harness_asks_for_settings_that_servers_have():
    for row in _HARNESS:
        assert set(row) <= {"of", "where", "asks"}
        assert set(row["asks"]) <= _OWN | set(ServingEngine.model_fields), row
        assert set(row.get("where", {})) <= _WHERE, row
        assert row["of"].partition("/")[0] in published("serving_systems")["engines"]
