//! Names of exchanges and routing keys as Python strings. Messages that come together mostly share them, and so the objects.

use pyo3::prelude::*;
use pyo3::types::PyString;

/// The name that the last delivery had, which most often is the next one's too.
pub(crate) struct Name<'a> {
    bytes: &'a [u8],
    object: Py<PyString>,
}

impl<'a> Name<'a> {
    pub(crate) fn new(py: Python<'_>) -> Self {
        Self { bytes: &[], object: PyString::new(py, "").unbind() }
    }

    pub(crate) fn object(&mut self, py: Python<'_>, bytes: &'a [u8]) -> Py<PyString> {
        if bytes != self.bytes {
            let text = std::str::from_utf8(bytes).unwrap_or_default();
            *self = Self { bytes, object: PyString::new(py, text).unbind() };
        }
        self.object.clone_ref(py)
    }
}
