"""Two suites here compare programs that ctest names to them; without those names there is nothing to collect."""

import os

TOOLS = {"test_samplers_real.py": "SAMPLER_TOOL", "test_enumeration_real.py": "PLAN_ORDER_TOOL"}
collect_ignore = [suite for suite, tool in TOOLS.items() if tool not in os.environ]
