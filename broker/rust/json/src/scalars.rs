//! Values of one size or of bytes under construction: one for each row, of any content where the row is null.

use std::sync::Arc;

use arrow_array::types::{
    Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, validate_decimal_precision_and_scale,
};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array,
    PrimitiveArray, TimestampMicrosecondArray,
};
use arrow_buffer::{ArrowNativeType, NullBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, TimeUnit};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::cells::Cells;
use crate::{numbers, times};

#[derive(Debug)]
pub(crate) enum Scalars {
    Boolean(Vec<bool>),
    Whole { least: i64, most: i64, values: Vec<i64> },
    Float(Vec<f32>),
    Double(Vec<f64>),
    Decimal { precision: u8, scale: i8, values: Vec<i128> },
    Binary(Cells),
    Date(Vec<i32>),
    Timestamp { is_zoned: bool, values: Vec<i64> },
}

impl Scalars {
    /// `None` for a type of another kind.
    pub fn new(kind: &DataType) -> Option<Scalars> {
        let whole = |least: i64, most: i64| Scalars::Whole { least, most, values: Vec::new() };
        Some(match kind {
            DataType::Boolean => Scalars::Boolean(Vec::new()),
            DataType::Int8 => whole(i8::MIN.into(), i8::MAX.into()),
            DataType::Int16 => whole(i16::MIN.into(), i16::MAX.into()),
            DataType::Int32 => whole(i32::MIN.into(), i32::MAX.into()),
            DataType::Int64 => whole(i64::MIN, i64::MAX),
            DataType::Float32 => Scalars::Float(Vec::new()),
            DataType::Float64 => Scalars::Double(Vec::new()),
            &DataType::Decimal128(precision, scale) => {
                // Arrow would refuse the column of each batch, not the schema.
                validate_decimal_precision_and_scale::<Decimal128Type>(precision, scale).ok()?;
                Scalars::Decimal { precision, scale, values: Vec::new() }
            }
            DataType::Binary => Scalars::Binary(Cells::new()),
            DataType::Date32 => Scalars::Date(Vec::new()),
            DataType::Timestamp(TimeUnit::Microsecond, zone) => {
                Scalars::Timestamp { is_zoned: zone.is_some(), values: Vec::new() }
            }
            _ => return None,
        })
    }

    /// Adds a boolean; `None` when it does not fit.
    pub fn put_bool(&mut self, value: bool) -> Option<()> {
        let Scalars::Boolean(values) = self else { return None };
        values.push(value);
        Some(())
    }

    /// Adds a value from a text; `None` when it does not fit.
    pub fn put_text(&mut self, text: &str) -> Option<()> {
        match self {
            Scalars::Float(values) => values.push(numbers::special(text)? as f32),
            Scalars::Double(values) => values.push(numbers::special(text)?),
            Scalars::Decimal { precision, scale, values } => {
                values.push(numbers::decimal(text.as_bytes(), *precision, *scale)?);
            }
            Scalars::Date(values) => values.push(times::date(text)?),
            Scalars::Timestamp { is_zoned, values } => values.push(times::timestamp(text, *is_zoned)?),
            Scalars::Binary(cells) => {
                STANDARD.decode_vec(text, cells.writer()).ok()?;
                cells.close().ok()?;
            }
            _ => return None,
        }
        Some(())
    }

    /// Adds a value from a number; `None` when it does not fit.
    pub fn put_number(&mut self, digits: &[u8]) -> Option<()> {
        match self {
            Scalars::Whole { least, most, values } => values.push(numbers::whole(digits, *least, *most)?),
            Scalars::Float(values) => values.push(numbers::float(digits)?),
            Scalars::Double(values) => values.push(numbers::float(digits)?),
            Scalars::Decimal { precision, scale, values } => values.push(numbers::decimal(digits, *precision, *scale)?),
            // Seconds, as in Spark.
            Scalars::Timestamp { is_zoned: true, values } => {
                values.push(numbers::whole(digits, i64::MIN, i64::MAX)?.checked_mul(1_000_000)?);
            }
            _ => return None,
        }
        Some(())
    }

    pub fn put_null(&mut self) {
        match self {
            Scalars::Boolean(values) => values.push(false),
            Scalars::Whole { values, .. } | Scalars::Timestamp { values, .. } => values.push(0),
            Scalars::Float(values) => values.push(0.0),
            Scalars::Double(values) => values.push(0.0),
            Scalars::Decimal { values, .. } => values.push(0),
            Scalars::Binary(cells) => cells.push_null(),
            Scalars::Date(values) => values.push(0),
        }
    }

    pub fn truncate(&mut self, row_count: usize) {
        match self {
            Scalars::Boolean(values) => values.truncate(row_count),
            Scalars::Whole { values, .. } | Scalars::Timestamp { values, .. } => values.truncate(row_count),
            Scalars::Float(values) => values.truncate(row_count),
            Scalars::Double(values) => values.truncate(row_count),
            Scalars::Decimal { values, .. } => values.truncate(row_count),
            Scalars::Binary(cells) => cells.truncate(row_count),
            Scalars::Date(values) => values.truncate(row_count),
        }
    }

    pub fn finish(self, kind: &DataType, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        Ok(match (self, kind) {
            (Scalars::Boolean(values), _) => Arc::new(BooleanArray::new(values.into(), nulls)),
            (Scalars::Whole { values, .. }, DataType::Int8) => whole::<Int8Type>(values, nulls)?,
            (Scalars::Whole { values, .. }, DataType::Int16) => whole::<Int16Type>(values, nulls)?,
            (Scalars::Whole { values, .. }, DataType::Int32) => whole::<Int32Type>(values, nulls)?,
            (Scalars::Whole { values, .. }, _) => Arc::new(PrimitiveArray::<Int64Type>::try_new(values.into(), nulls)?),
            (Scalars::Float(values), _) => Arc::new(Float32Array::try_new(values.into(), nulls)?),
            (Scalars::Double(values), _) => Arc::new(Float64Array::try_new(values.into(), nulls)?),
            (Scalars::Decimal { precision, scale, values }, _) => {
                let array = Decimal128Array::try_new(values.into(), nulls)?;
                Arc::new(array.with_precision_and_scale(precision, scale)?)
            }
            (Scalars::Binary(cells), _) => cells.binary(nulls)?,
            (Scalars::Date(values), _) => Arc::new(Date32Array::try_new(values.into(), nulls)?),
            (Scalars::Timestamp { values, .. }, kind) => {
                let zone = if let DataType::Timestamp(_, zone) = kind { zone.clone() } else { None };
                Arc::new(TimestampMicrosecondArray::try_new(values.into(), nulls)?.with_timezone_opt(zone))
            }
        })
    }
}

/// All of them were checked to be in the type's range.
fn whole<T: ArrowPrimitiveType>(values: Vec<i64>, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError>
where
    T::Native: TryFrom<i64> + ArrowNativeType,
{
    let narrow = |value| T::Native::try_from(value).unwrap_or_default();
    let values: ScalarBuffer<T::Native> = values.into_iter().map(narrow).collect();
    Ok(Arc::new(PrimitiveArray::<T>::try_new(values, nulls)?))
}
