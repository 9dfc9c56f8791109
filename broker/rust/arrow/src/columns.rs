//! The columns of a stream as Arrow, in order, and projections.
//!
//! Invariant: names, types and order are a contract; Spark compares the types exactly.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use crate::error::ArrowFault;

/// One column of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Offset,
    Timestamp,
    Key,
    Exchange,
    RoutingKey,
    Body,
    Properties,
    Headers,
    Partition,
}

impl Column {
    pub const ALL: [Column; 9] = [
        Column::Offset,
        Column::Timestamp,
        Column::Key,
        Column::Exchange,
        Column::RoutingKey,
        Column::Body,
        Column::Properties,
        Column::Headers,
        Column::Partition,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Column::Offset => "offset",
            Column::Timestamp => "timestamp",
            Column::Key => "key",
            Column::Exchange => "exchange",
            Column::RoutingKey => "routing_key",
            Column::Body => "body",
            Column::Properties => "properties",
            Column::Headers => "headers",
            Column::Partition => "partition",
        }
    }

    fn field(self) -> Field {
        let (data_type, nullable) = match self {
            Column::Offset => (DataType::Int64, false),
            Column::Timestamp => (timestamp_type(), false),
            Column::Key => (DataType::Binary, true),
            Column::Exchange | Column::RoutingKey | Column::Partition => (DataType::Utf8, false),
            Column::Body => (DataType::Binary, false),
            Column::Properties => (DataType::Struct(property_fields()), true),
            Column::Headers => (DataType::List(header_entry()), false),
        };
        Field::new(self.name(), data_type, nullable)
    }
}

/// Microseconds, in UTC.
pub(crate) fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
}

pub(crate) const UTC: &str = "UTC";

/// The children of `properties`.
pub(crate) fn property_fields() -> Fields {
    let text = |name| Field::new(name, DataType::Utf8, true);
    let number = |name| Field::new(name, DataType::Int32, true);
    Fields::from(vec![
        text("content_type"),
        text("content_encoding"),
        number("delivery_mode"),
        number("priority"),
        text("correlation_id"),
        text("reply_to"),
        text("expiration"),
        text("message_id"),
        Field::new("timestamp", timestamp_type(), true),
        text("type"),
        text("user_id"),
        text("app_id"),
    ])
}

/// One entry of `headers`, named as Spark and Parquet name the items of a list.
pub(crate) fn header_entry() -> Arc<Field> {
    Arc::new(Field::new("element", DataType::Struct(entry_fields()), false))
}

/// The names are those of Kafka's headers in Spark.
pub(crate) fn entry_fields() -> Fields {
    Fields::from(vec![Field::new(HEADER_NAME, DataType::Utf8, false), Field::new(HEADER_VALUE, DataType::Binary, true)])
}

pub(crate) const HEADER_NAME: &str = "key";
pub(crate) const HEADER_VALUE: &str = "value";

/// Requested columns, in the order of [`Column::ALL`] or their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Projection {
    columns: Vec<Column>,
}

impl Projection {
    /// All columns.
    #[must_use]
    pub fn all() -> Projection {
        Projection { columns: Column::ALL.to_vec() }
    }

    /// # Errors
    /// `NoColumn`, `ColumnTwice`, `NoColumns`.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Projection, ArrowFault> {
        let mut columns = Vec::new();
        for name in names {
            let column = Column::ALL.into_iter().find(|column| column.name() == name);
            let column = column.ok_or_else(|| ArrowFault::NoColumn(name.to_owned()))?;
            if columns.contains(&column) {
                return Err(ArrowFault::ColumnTwice(name.to_owned()));
            }
            columns.push(column);
        }
        if columns.is_empty() { Err(ArrowFault::NoColumns) } else { Ok(Projection { columns }) }
    }

    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(crate) fn has(&self, column: Column) -> bool {
        self.columns.contains(&column)
    }

    #[must_use]
    pub fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.columns.iter().map(|column| column.field()).collect::<Vec<_>>()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Column, Projection};
    use crate::error::ArrowFault;

    #[test]
    fn columns_come_in_the_order_in_which_they_are_named() {
        let projection = Projection::of(["body", "offset"]).unwrap();

        assert_eq!(projection.columns(), [Column::Body, Column::Offset]);
        assert_eq!(
            projection.schema().fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(),
            ["body", "offset"]
        );
    }

    #[test]
    fn what_is_no_choice_of_columns_is_refused() {
        assert!(matches!(Projection::of(["offsets"]), Err(ArrowFault::NoColumn(name)) if name == "offsets"));
        assert!(matches!(Projection::of(["key", "key"]), Err(ArrowFault::ColumnTwice(_))));
        assert!(matches!(Projection::of([]), Err(ArrowFault::NoColumns)));
    }
}
