//! A column under construction: a value for each row, which can be cut off again when its row turns out to be bad.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, ListArray, MapArray, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields};
use jiter::Peek;

use crate::cells::{Cells, Ends};
use crate::fault::{Fault, SchemaFault};
use crate::input::Input;
use crate::scalars::Scalars;
use crate::written;

#[derive(Debug)]
pub(crate) struct Column {
    kind: DataType,
    is_valid: Vec<bool>,
    values: Values,
}

/// Invariant: one value for each row of the column, of any content where the row is null.
#[derive(Debug)]
enum Values {
    Scalar(Scalars),
    Text(Cells),
    List { ends: Ends, items: Box<Column> },
    Map { ends: Ends, keys: Cells, values: Box<Column> },
    Struct(Record),
}

impl Column {
    /// # Errors
    /// `Unsupported`, `NotNullable`, `Twice`.
    pub fn new(field: &Field) -> Result<Column, SchemaFault> {
        if !field.is_nullable() {
            return Err(SchemaFault::NotNullable(field.name().clone()));
        }
        let values = match field.data_type() {
            DataType::Utf8 => Values::Text(Cells::new()),
            DataType::List(item) => Values::List { ends: Ends::new(), items: Box::new(Column::new(item)?) },
            DataType::Map(entries, false) => map_of(field, entries)?,
            DataType::Struct(fields) => Values::Struct(Record::new(fields)?),
            kind => Values::Scalar(Scalars::new(kind).ok_or_else(|| unsupported(field))?),
        };
        Ok(Column { kind: field.data_type().clone(), is_valid: Vec::new(), values })
    }

    pub fn row_count(&self) -> usize {
        self.is_valid.len()
    }

    /// How many values a row takes.
    pub fn width(&self) -> usize {
        match &self.values {
            Values::Struct(record) => record.width(),
            _ => 1,
        }
    }

    /// Adds the next value. After an error the column is to be truncated.
    pub fn put(&mut self, input: &mut Input<'_>, peek: Peek) -> Result<(), Fault> {
        if peek == Peek::Null {
            input.json.known_null()?;
            self.put_null();
            return Ok(());
        }
        match (&mut self.values, peek) {
            (Values::Text(cells), _) => put_text(cells, input, peek)?,
            (Values::List { ends, items }, Peek::Array) => put_list(ends, items, input)?,
            (Values::Map { ends, keys, values }, Peek::Object) => put_map(ends, keys, values, input)?,
            (Values::Struct(record), Peek::Object) => record.put(input)?,
            (Values::Scalar(values), peek) => {
                if put_scalar(values, input, peek)?.is_none() {
                    return Err(Fault::unfit(&self.kind, peek));
                }
            }
            _ => {
                // It may be no JSON at all.
                input.json.known_skip(peek)?;
                return Err(Fault::unfit(&self.kind, peek));
            }
        }
        self.is_valid.push(true);
        Ok(())
    }

    pub fn put_null(&mut self) {
        self.values.put_null();
        self.is_valid.push(false);
    }

    pub fn truncate(&mut self, row_count: usize) {
        self.is_valid.truncate(row_count);
        self.values.truncate(row_count);
    }

    pub fn finish(self) -> Result<ArrayRef, ArrowError> {
        let nulls = self.is_valid.contains(&false).then(|| NullBuffer::from(self.is_valid));
        self.values.finish(&self.kind, nulls)
    }
}

fn unsupported(field: &Field) -> SchemaFault {
    SchemaFault::Unsupported { name: field.name().clone(), kind: field.data_type().clone() }
}

fn map_of(field: &Field, entries: &Field) -> Result<Values, SchemaFault> {
    let DataType::Struct(fields) = entries.data_type() else { return Err(unsupported(field)) };
    match fields.iter().as_slice() {
        [key, value] if key.data_type() == &DataType::Utf8 => {
            Ok(Values::Map { ends: Ends::new(), keys: Cells::new(), values: Box::new(Column::new(value)?) })
        }
        _ => Err(unsupported(field)),
    }
}

/// Adds a value; `None` when it does not fit.
fn put_scalar(values: &mut Scalars, input: &mut Input<'_>, peek: Peek) -> Result<Option<()>, Fault> {
    Ok(match peek {
        Peek::String => values.put_text(input.json.known_str()?),
        Peek::True | Peek::False => values.put_bool(input.json.known_bool(peek)?),
        number if number.is_num() => values.put_number(input.json.known_number_bytes(number)?),
        _ => {
            // It may be no JSON at all.
            input.json.known_skip(peek)?;
            None
        }
    })
}

/// A value that is no text becomes its JSON.
fn put_text(cells: &mut Cells, input: &mut Input<'_>, peek: Peek) -> Result<(), Fault> {
    if peek == Peek::String {
        return cells.push(input.json.known_str()?.as_bytes());
    }
    written::write(&mut input.json, peek, cells.writer())?;
    cells.close()
}

fn put_list(ends: &mut Ends, items: &mut Column, input: &mut Input<'_>) -> Result<(), Fault> {
    let width = items.width();
    let mut item = input.json.known_array()?;
    while let Some(peek) = item {
        input.spend(width)?;
        items.put(input, peek)?;
        item = input.json.array_step()?;
    }
    ends.close(items.row_count())
}

fn put_map(ends: &mut Ends, keys: &mut Cells, values: &mut Column, input: &mut Input<'_>) -> Result<(), Fault> {
    let width = values.width().saturating_add(1);
    let mut is_open = input.json.known_object()?.map(|key| keys.push(key.as_bytes())).transpose()?.is_some();
    while is_open {
        input.spend(width)?;
        let peek = input.json.peek()?;
        values.put(input, peek)?;
        is_open = input.json.next_key()?.map(|key| keys.push(key.as_bytes())).transpose()?.is_some();
    }
    ends.close(values.row_count())
}

impl Values {
    fn put_null(&mut self) {
        match self {
            Values::Scalar(values) => values.put_null(),
            Values::Text(cells) => cells.push_null(),
            Values::List { ends, .. } | Values::Map { ends, .. } => ends.repeat(),
            Values::Struct(record) => record.put_null(),
        }
    }

    fn truncate(&mut self, row_count: usize) {
        match self {
            Values::Scalar(values) => values.truncate(row_count),
            Values::Text(cells) => cells.truncate(row_count),
            Values::List { ends, items } => {
                ends.truncate(row_count);
                items.truncate(ends.last());
            }
            Values::Map { ends, keys, values } => {
                ends.truncate(row_count);
                keys.truncate(ends.last());
                values.truncate(ends.last());
            }
            Values::Struct(record) => record.truncate(row_count),
        }
    }

    fn finish(self, kind: &DataType, nulls: Option<NullBuffer>) -> Result<ArrayRef, ArrowError> {
        Ok(match (self, kind) {
            (Values::Scalar(values), kind) => values.finish(kind, nulls)?,
            (Values::Text(cells), _) => cells.strings(nulls)?,
            (Values::List { ends, items }, DataType::List(item)) => {
                Arc::new(ListArray::try_new(Arc::clone(item), ends.finish(), items.finish()?, nulls)?)
            }
            (Values::Map { ends, keys, values }, DataType::Map(entries, is_sorted)) => {
                let DataType::Struct(fields) = entries.data_type() else { return Err(another_kind(kind)) };
                let columns = vec![keys.strings(None)?, values.finish()?];
                let pairs = StructArray::try_new(fields.clone(), columns, None)?;
                Arc::new(MapArray::try_new(Arc::clone(entries), ends.finish(), pairs, nulls, *is_sorted)?)
            }
            (Values::Struct(record), DataType::Struct(fields)) => {
                let row_count = record.row_count();
                Arc::new(StructArray::try_new_with_length(fields.clone(), record.finish()?, nulls, row_count)?)
            }
            _ => return Err(another_kind(kind)),
        })
    }
}

/// The fields of an object as columns side by side.
///
/// Invariant: between two rows all columns have as many values as there are rows.
#[derive(Debug)]
pub(crate) struct Record {
    names: Vec<String>,
    places: HashMap<String, usize>,
    columns: Vec<Column>,
    row_count: usize,
}

impl Record {
    pub fn new(fields: &Fields) -> Result<Record, SchemaFault> {
        let mut columns = Vec::with_capacity(fields.len());
        for field in fields {
            columns.push(Column::new(field)?);
        }
        let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
        let places: HashMap<String, usize> = names.iter().cloned().zip(0..).collect();
        if let Some((name, _)) = names.iter().zip(0..).find(|(name, at)| places.get(*name) != Some(at)) {
            return Err(SchemaFault::Twice(name.clone()));
        }
        Ok(Record { names, places, columns, row_count: 0 })
    }

    /// Adds the next value, which is an object. Of a name that comes twice the last value counts.
    pub fn put(&mut self, input: &mut Input<'_>) -> Result<(), Fault> {
        let mut expected = 0;
        let mut found = input.json.known_object()?.map(|key| self.place_of(key, expected));
        while let Some(place) = found {
            let peek = input.json.peek()?;
            match place.and_then(|at| self.columns.get_mut(at).map(|column| (at, column))) {
                Some((at, column)) => {
                    if column.row_count() > self.row_count {
                        column.truncate(self.row_count);
                    }
                    column.put(input, peek).map_err(|fault| self.of_field(at, fault))?;
                    expected = at + 1;
                }
                None => input.json.known_skip(peek)?,
            }
            found = input.json.next_key()?.map(|key| self.place_of(key, expected));
        }
        self.row_count += 1;
        self.fill();
        Ok(())
    }

    /// Adds a row without values.
    pub fn put_null(&mut self) {
        self.row_count += 1;
        self.fill();
    }

    pub fn truncate(&mut self, row_count: usize) {
        self.row_count = row_count;
        self.columns.iter_mut().for_each(|column| column.truncate(row_count));
    }

    pub fn row_count(&self) -> usize {
        self.row_count
    }

    /// How many values a row takes.
    pub fn width(&self) -> usize {
        self.columns.iter().fold(1, |sum, column| sum.saturating_add(column.width()))
    }

    pub fn finish(self) -> Result<Vec<ArrayRef>, ArrowError> {
        self.columns.into_iter().map(Column::finish).collect()
    }

    fn fill(&mut self) {
        for column in &mut self.columns {
            if column.row_count() < self.row_count {
                column.put_null();
            }
        }
    }

    /// Objects mostly have their fields in the same order.
    #[inline]
    fn place_of(&self, key: &str, expected: usize) -> Option<usize> {
        if self.names.get(expected).is_some_and(|name| name == key) {
            return Some(expected);
        }
        self.places.get(key).copied()
    }

    fn of_field(&self, at: usize, fault: Fault) -> Fault {
        fault.within(self.names.get(at).map_or("", String::as_str))
    }
}

fn another_kind(kind: &DataType) -> ArrowError {
    ArrowError::SchemaError(format!("a column is not {kind}"))
}
