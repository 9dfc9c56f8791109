"""The broker's process: settings, launcher, signals. The only package that knows all the others."""

from penstock.node.config import ConfigurationError, Settings, StartError, load_settings, load_with_origins
from penstock.node.process import run
from penstock.node.tls import check_tls

__all__ = [
    "ConfigurationError",
    "Settings",
    "StartError",
    "check_tls",
    "load_settings",
    "load_with_origins",
    "run",
]
