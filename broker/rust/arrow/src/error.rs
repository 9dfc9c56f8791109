//! Errors of columns and batches, all caused by the client except `Arrow`, which may be either's.

use arrow_schema::{ArrowError, DataType};

#[derive(Debug, thiserror::Error)]
pub enum ArrowFault {
    #[error(
        "there is no column '{0}'; there are offset, timestamp, key, exchange, routing_key, body, properties, headers, partition"
    )]
    NoColumn(String),
    #[error("column '{0}' is named twice; name it once")]
    ColumnTwice(String),
    #[error("at least one column is needed; leave `columns` out for all of them")]
    NoColumns,
    #[error("the rows have no column 'body', which holds what is published; add one of type binary or utf8")]
    NoBody,
    #[error("column '{0}' cannot be published; leave it out, or name it as one of the properties")]
    UnknownColumn(String),
    #[error("column '{column}' is {found}; it has to be {wanted}")]
    ColumnType { column: String, found: DataType, wanted: &'static str },
    #[error("row {row} has no body; write empty bytes for an empty message")]
    NullBody { row: usize },
    #[error("row {row} has a header without a name; name every header")]
    UnnamedHeader { row: usize },
    #[error("row {row}: {column} is out of range; {rule}")]
    OutOfRange { row: usize, column: &'static str, rule: &'static str },
    #[error("a message of Arrow's IPC format is malformed: {0}")]
    Malformed(&'static str),
    #[error(transparent)]
    Arrow(#[from] ArrowError),
}
