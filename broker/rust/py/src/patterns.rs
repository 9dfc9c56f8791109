//! Compiled patterns as Python objects. Two are equal when they have the same source and match in the same places.

use penstock_pattern::{Extent, Pattern as Compiled};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::errors::of_pattern;

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Pattern>()
}

#[pyclass(frozen, eq, hash, module = "penstock._core")]
struct Pattern {
    #[pyo3(get)]
    source: String,
    is_whole: bool,
    compiled: Compiled,
}

#[pymethods]
impl Pattern {
    #[new]
    #[pyo3(signature = (source, *, is_whole))]
    fn new(py: Python<'_>, source: String, is_whole: bool) -> PyResult<Self> {
        let extent = if is_whole { Extent::Whole } else { Extent::Part };
        match Compiled::new(&source, extent) {
            Ok(compiled) => Ok(Self { source, is_whole, compiled }),
            Err(refusal) => Err(of_pattern(py, &source, refusal)),
        }
    }

    fn matches(&self, text: &Bound<'_, PyString>) -> PyResult<bool> {
        match text.to_str() {
            Ok(text) => Ok(self.compiled.is_match(text)),
            Err(_) => Ok(self.compiled.is_match(&replaced(text)?)),
        }
    }

    #[getter]
    fn size(&self) -> usize {
        self.compiled.size()
    }

    fn __repr__(&self) -> String {
        format!("Pattern({:?}, is_whole={})", self.source, if self.is_whole { "True" } else { "False" })
    }
}

/// A routing key that is not UTF-8 comes as lone surrogates. Each of them is matched as U+FFFD.
fn replaced(text: &Bound<'_, PyString>) -> PyResult<String> {
    let encoded = text.call_method1("encode", ("utf-8", "surrogatepass"))?;
    let mut bytes: Vec<u8> = encoded.extract()?;
    for at in 0..bytes.len() {
        if let [0xED, 0xA0..=0xBF, _, ..] = bytes[at..] {
            bytes[at..at + 3].copy_from_slice("\u{FFFD}".as_bytes());
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source && self.is_whole == other.is_whole
    }
}

impl Eq for Pattern {}

impl std::hash::Hash for Pattern {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.source, self.is_whole).hash(state);
    }
}
