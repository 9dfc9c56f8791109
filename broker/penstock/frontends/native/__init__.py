"""The native listener of all protocols that are served in Rust: it hands over calls, and a protocol decides each."""

from penstock.frontends.native.admission import admit, permit_keys, vhost_of
from penstock.frontends.native.native_listener import NativeListener
from penstock.frontends.native.ports import Call, Decider, Listener
from penstock.frontends.native.server import NativeFrontend

__all__ = ["Call", "Decider", "Listener", "NativeFrontend", "NativeListener", "admit", "permit_keys", "vhost_of"]
