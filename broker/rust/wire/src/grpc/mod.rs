//! The messages of `penstock.v1.MessagingService`, of reading streams and of staging, read in place and appended to
//! vectors.
//!
//! Fields may come in any order and unknown ones are skipped; a repeated message field is refused instead of merged.
//! Names are checked (UTF-8, at most 255 bytes), bodies are not read. The meaning of the content (does the exchange
//! exist, is the range held) is not known here.

pub mod consume;
pub mod deliveries;
pub mod get;
pub mod peek;
pub mod publish;
pub mod read;
pub mod refusal;
pub mod settlement;
pub mod staging;

pub use consume::{
    ConsumeEvent, ConsumeFrame, ConsumeOpen, encode_consume_cancelled, encode_consume_open, encode_consume_opened,
    encode_flow, encode_settlement, parse_consume_request, parse_consume_response,
};
pub use deliveries::{DeliveriesEncoder, DeliveriesView, DeliveryRef, DeliveryView};
pub use get::{
    GetRequest, GetResponseView, SettleRequest, encode_get_request, encode_get_response, encode_settle_request,
    encode_settle_response, parse_get_request, parse_get_response, parse_settle_request, parse_settle_response,
};
pub use publish::{
    BatchEncoder, BatchView, HeldBatch, MessageNames, MessageRef, Messages, Outcome, Outcomes, PublishFrame,
    encode_publish_open, encode_publish_response, parse_publish, parse_publish_response,
};
pub use read::{
    ReadEvent, ReadFrame, ReadOpen, Start, encode_active, encode_credit, encode_read_cancelled, encode_read_open,
    encode_read_opened, encode_stored, parse_read_request, parse_read_response,
};
pub use refusal::{LeaderHint, parse_leader_hint};
pub use settlement::{RANGES_MAX, Ranges, SettlementView};
