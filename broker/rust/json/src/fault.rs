//! Why a body is bad, in words for whoever published it, and why a schema cannot be decoded.

use std::fmt;

use arrow_schema::{ArrowError, DataType};
use jiter::{JiterError, Peek};

/// A schema that JSON cannot be decoded to.
#[derive(Debug, thiserror::Error)]
pub enum SchemaFault {
    #[error("column '{name}' is {kind}, which JSON is not decoded to")]
    Unsupported { name: String, kind: DataType },
    #[error("column '{0}' must be nullable: a body may lack it")]
    NotNullable(String),
    #[error("there are two columns '{0}'")]
    Twice(String),
    #[error("the offsets of the bodies do not lie within them")]
    Offsets,
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}

/// A body that does not fit: the field, where it is known, and the reason.
#[derive(Debug)]
pub(crate) struct Fault {
    path: String,
    reason: String,
    /// Then it is no field's.
    is_of_body: bool,
}

impl Fault {
    pub fn new(reason: impl Into<String>) -> Fault {
        Fault { path: String::new(), reason: reason.into(), is_of_body: false }
    }

    /// Of a body that is no JSON at all.
    pub fn of_body(reason: &str) -> Fault {
        Fault { is_of_body: true, ..Fault::new(format!("the body is not JSON: {reason}")) }
    }

    /// Of a value that its type does not take.
    pub fn unfit(kind: &DataType, peek: Peek) -> Fault {
        Fault::new(format!("{} does not fit {kind}", described(peek)))
    }

    pub fn within(mut self, field: &str) -> Fault {
        if self.is_of_body {
            return self;
        }
        self.path = if self.path.is_empty() { field.to_owned() } else { format!("{field}.{}", self.path) };
        self
    }
}

impl From<JiterError> for Fault {
    fn from(error: JiterError) -> Fault {
        Fault::of_body(&format!("{} at byte {}", error.error_type, error.index))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => out.write_str(&self.reason),
            path => write!(out, "field '{path}': {}", self.reason),
        }
    }
}

fn described(peek: Peek) -> &'static str {
    match peek {
        Peek::Null => "null",
        Peek::True | Peek::False => "a boolean",
        Peek::String => "this text",
        Peek::Array => "an array",
        Peek::Object => "an object",
        peek if peek.is_num() => "this number",
        _ => "this",
    }
}
