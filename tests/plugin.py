"""The plugin that pyproject.toml names: loads the fixtures in the processes that run tests.

The process of pytest-xdist that hands tests out to others needs none of what they import.
"""


def pytest_configure(config):
    if config.getoption("dist", "no") == "no":
        config.pluginmanager.import_plugin("tests.fixtures")
