//! The column `properties` under construction: a struct whose children are filled only where a message has them.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, StructArray, TimestampMicrosecondArray};
use arrow_buffer::ScalarBuffer;
use arrow_schema::ArrowError;
use penstock_wire::amqp::view::PropertiesView;

use crate::columns::{UTC, property_fields};
use crate::text::{Optional, Validity};

/// AMQP's default for a block without a delivery mode.
const TRANSIENT: u8 = 1;

pub(crate) struct Properties {
    content_type: Optional,
    content_encoding: Optional,
    delivery_mode: Numbers<i32>,
    priority: Numbers<i32>,
    correlation_id: Optional,
    reply_to: Optional,
    expiration: Optional,
    message_id: Optional,
    timestamp: Numbers<i64>,
    message_type: Optional,
    user_id: Optional,
    app_id: Optional,
    validity: Validity,
}

impl Properties {
    pub fn new() -> Properties {
        Properties {
            content_type: Optional::new(),
            content_encoding: Optional::new(),
            delivery_mode: Numbers::new(),
            priority: Numbers::new(),
            correlation_id: Optional::new(),
            reply_to: Optional::new(),
            expiration: Optional::new(),
            message_id: Optional::new(),
            timestamp: Numbers::new(),
            message_type: Optional::new(),
            user_id: Optional::new(),
            app_id: Optional::new(),
            validity: Validity::new(),
        }
    }

    pub fn put(&mut self, row: usize, view: &PropertiesView<'_>) {
        self.validity.set(row);
        for (column, text) in [
            (&mut self.content_type, view.content_type),
            (&mut self.content_encoding, view.content_encoding),
            (&mut self.correlation_id, view.correlation_id),
            (&mut self.reply_to, view.reply_to),
            (&mut self.expiration, view.expiration),
            (&mut self.message_id, view.message_id),
            (&mut self.message_type, view.message_type),
            (&mut self.user_id, view.user_id),
            (&mut self.app_id, view.app_id),
        ] {
            if let Some(text) = text {
                column.put_text(row, text);
            }
        }
        self.delivery_mode.put(row, i32::from(view.delivery_mode.unwrap_or(TRANSIENT)));
        if let Some(priority) = view.priority {
            self.priority.put(row, i32::from(priority));
        }
        // A time beyond the year 292277 does not fit the column.
        let micros = view.timestamp.and_then(|seconds| i64::try_from(seconds).ok()?.checked_mul(1_000_000));
        if let Some(micros) = micros {
            self.timestamp.put(row, micros);
        }
    }

    pub fn finish(self, row_count: usize) -> Result<ArrayRef, ArrowError> {
        let number = |column: Numbers<i32>| -> ArrayRef {
            let (values, nulls) = column.finish(row_count);
            Arc::new(Int32Array::new(ScalarBuffer::from(values), nulls))
        };
        let (times, time_nulls) = self.timestamp.finish(row_count);
        let times = TimestampMicrosecondArray::try_new(ScalarBuffer::from(times), time_nulls)?.with_timezone(UTC);
        let children = vec![
            self.content_type.strings(row_count)?,
            self.content_encoding.strings(row_count)?,
            number(self.delivery_mode),
            number(self.priority),
            self.correlation_id.strings(row_count)?,
            self.reply_to.strings(row_count)?,
            self.expiration.strings(row_count)?,
            self.message_id.strings(row_count)?,
            Arc::new(times),
            self.message_type.strings(row_count)?,
            self.user_id.strings(row_count)?,
            self.app_id.strings(row_count)?,
        ];
        Ok(Arc::new(StructArray::try_new(property_fields(), children, self.validity.finish(row_count))?))
    }
}

struct Numbers<T> {
    values: Vec<T>,
    validity: Validity,
}

impl<T: Copy + Default> Numbers<T> {
    fn new() -> Numbers<T> {
        Numbers { values: Vec::new(), validity: Validity::new() }
    }

    fn put(&mut self, row: usize, value: T) {
        self.values.resize(row, T::default());
        self.values.push(value);
        self.validity.set(row);
    }

    fn finish(mut self, row_count: usize) -> (Vec<T>, Option<arrow_buffer::NullBuffer>) {
        self.values.resize(row_count, T::default());
        (self.values, self.validity.finish(row_count))
    }
}
