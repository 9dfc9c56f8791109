//! The decoder for a caller that knows Arrow by its format alone: schema and batch as streams of IPC, bodies as the two
//! buffers of a binary array.

use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;

use crate::decoder::{BadRow, Decoder};
use crate::fault::SchemaFault;

const OFFSET_BYTES: usize = 4;

/// See the module.
#[derive(Debug)]
pub struct IpcDecoder(Decoder);

impl IpcDecoder {
    /// # Errors
    /// When it is no schema, or none that JSON is decoded to.
    pub fn new(schema: &[u8]) -> Result<IpcDecoder, SchemaFault> {
        let reader = StreamReader::try_new(schema, None)?;
        Ok(IpcDecoder(Decoder::new(reader.schema().fields())?))
    }

    /// `offsets` are four bytes each, little-endian, and count from the first of them.
    ///
    /// # Errors
    /// When the offsets are no binary array's.
    pub fn decode(&self, offsets: &[u8], bodies: &[u8]) -> Result<(Vec<u8>, Vec<BadRow>), SchemaFault> {
        let mut found = Vec::with_capacity(offsets.len() / OFFSET_BYTES);
        let (ends, _) = offsets.as_chunks::<OFFSET_BYTES>();
        let first = i32::from_le_bytes(*ends.first().ok_or(SchemaFault::Offsets)?);
        let mut at = 0;
        for end in ends.iter().skip(1) {
            let end = i32::from_le_bytes(*end).checked_sub(first).and_then(|end| usize::try_from(end).ok());
            let end = end.ok_or(SchemaFault::Offsets)?;
            found.push(bodies.get(at..end).ok_or(SchemaFault::Offsets)?);
            at = end;
        }
        let decoded = self.0.decode(found.into_iter())?;
        let mut writer = StreamWriter::try_new(Vec::with_capacity(bodies.len()), &decoded.batch.schema())?;
        writer.write(&decoded.batch)?;
        Ok((writer.into_inner()?, decoded.bad))
    }
}
