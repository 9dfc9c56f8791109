//! The protobuf wire format: numbers, tags and length-delimited fields, read in place and appended to vectors.
//! It knows no message type; `grpc` does.

mod reader;
mod writer;

pub use reader::{Reader, WireType, bytes_key, varint_key};
pub use writer::{
    LENGTH_PADDED_BYTES, begin_length, end_length, put_bool, put_bytes, put_len_head, put_text, put_uint, put_varint,
    varint_len,
};
