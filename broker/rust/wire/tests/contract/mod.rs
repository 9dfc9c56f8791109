//! The messages of `proto/penstock/v1/{message,messaging,streams}.proto` as prost reads and writes them: the oracle of
//! the hand-written codec. Field numbers and types must match the `.proto` files.
#![allow(dead_code)]

use std::collections::BTreeMap;

#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9")]
    pub kind: Option<Kind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(int64, tag = "2")]
    Int(i64),
    #[prost(double, tag = "3")]
    Double(f64),
    #[prost(string, tag = "4")]
    Text(String),
    #[prost(bytes, tag = "5")]
    Bytes(Vec<u8>),
    #[prost(uint64, tag = "6")]
    Timestamp(u64),
    #[prost(message, tag = "7")]
    Table(Table),
    #[prost(message, tag = "8")]
    Array(Array),
    #[prost(message, tag = "9")]
    Decimal(Decimal),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Table {
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Array {
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<Value>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Decimal {
    #[prost(uint32, tag = "1")]
    pub scale: u32,
    #[prost(int32, tag = "2")]
    pub unscaled: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Properties {
    #[prost(string, tag = "1")]
    pub content_type: String,
    #[prost(string, tag = "2")]
    pub content_encoding: String,
    #[prost(btree_map = "string, message", tag = "3")]
    pub headers: BTreeMap<String, Value>,
    #[prost(uint32, tag = "4")]
    pub delivery_mode: u32,
    #[prost(uint32, optional, tag = "5")]
    pub priority: Option<u32>,
    #[prost(string, tag = "6")]
    pub correlation_id: String,
    #[prost(string, tag = "7")]
    pub reply_to: String,
    #[prost(string, tag = "8")]
    pub expiration: String,
    #[prost(string, tag = "9")]
    pub message_id: String,
    #[prost(uint64, optional, tag = "10")]
    pub timestamp: Option<u64>,
    #[prost(string, tag = "11")]
    pub r#type: String,
    #[prost(string, tag = "12")]
    pub user_id: String,
    #[prost(string, tag = "13")]
    pub app_id: String,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Range {
    #[prost(uint64, tag = "1")]
    pub first: u64,
    #[prost(uint64, tag = "2")]
    pub last: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PublishRequest {
    #[prost(oneof = "PublishContent", tags = "1, 2")]
    pub request: Option<PublishContent>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum PublishContent {
    #[prost(message, tag = "1")]
    Open(PublishOpen),
    #[prost(message, tag = "2")]
    Batch(PublishBatch),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PublishOpen {
    #[prost(string, tag = "1")]
    pub vhost: String,
    #[prost(int32, tag = "2")]
    pub level: i32,
    #[prost(string, tag = "3")]
    pub producer: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PublishBatch {
    #[prost(string, tag = "1")]
    pub exchange: String,
    #[prost(string, tag = "2")]
    pub routing_key: String,
    #[prost(bool, tag = "3")]
    pub mandatory: bool,
    #[prost(message, repeated, tag = "4")]
    pub messages: Vec<Message>,
    #[prost(uint64, tag = "5")]
    pub producer_sequence: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    #[prost(bytes = "vec", tag = "1")]
    pub body: Vec<u8>,
    #[prost(string, optional, tag = "2")]
    pub exchange: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub routing_key: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub properties: Option<Properties>,
    #[prost(bytes = "vec", optional, tag = "5")]
    pub key: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct PublishResponse {
    #[prost(message, repeated, tag = "1")]
    pub confirmed: Vec<Range>,
    #[prost(message, repeated, tag = "2")]
    pub returned: Vec<Returned>,
    #[prost(message, repeated, tag = "3")]
    pub rejected: Vec<Rejected>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Returned {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(string, tag = "2")]
    pub reason: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Rejected {
    #[prost(uint64, tag = "1")]
    pub first: u64,
    #[prost(uint64, tag = "2")]
    pub last: u64,
    #[prost(int32, tag = "3")]
    pub code: i32,
    #[prost(string, tag = "4")]
    pub reason: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ConsumeRequest {
    #[prost(oneof = "ConsumeContent", tags = "1, 2, 3")]
    pub request: Option<ConsumeContent>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ConsumeContent {
    #[prost(message, tag = "1")]
    Open(ConsumeOpen),
    #[prost(message, tag = "2")]
    Settle(Settlement),
    #[prost(message, tag = "3")]
    Flow(Flow),
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConsumeOpen {
    #[prost(string, tag = "1")]
    pub vhost: String,
    #[prost(string, tag = "2")]
    pub queue: String,
    #[prost(string, tag = "3")]
    pub consumer_tag: String,
    #[prost(uint32, tag = "4")]
    pub prefetch: u32,
    #[prost(bool, tag = "5")]
    pub auto_ack: bool,
    #[prost(bool, tag = "6")]
    pub exclusive: bool,
    #[prost(int32, tag = "7")]
    pub priority: i32,
    #[prost(uint64, tag = "8")]
    pub consumer_timeout_ms: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Settlement {
    #[prost(message, repeated, tag = "1")]
    pub ranges: Vec<Range>,
    #[prost(int32, tag = "2")]
    pub outcome: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Flow {
    #[prost(uint32, tag = "1")]
    pub prefetch: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ConsumeResponse {
    #[prost(oneof = "ConsumeAnswer", tags = "1, 2, 3")]
    pub response: Option<ConsumeAnswer>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ConsumeAnswer {
    #[prost(message, tag = "1")]
    Opened(Text),
    #[prost(message, tag = "2")]
    Deliveries(Deliveries),
    #[prost(message, tag = "3")]
    Cancelled(Text),
}

/// `ConsumeOpened` and `ConsumeCancelled`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Text {
    #[prost(string, tag = "1")]
    pub text: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Deliveries {
    #[prost(message, repeated, tag = "1")]
    pub deliveries: Vec<Delivery>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Delivery {
    #[prost(uint64, tag = "1")]
    pub sequence: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub body: Vec<u8>,
    #[prost(string, tag = "3")]
    pub exchange: String,
    #[prost(string, tag = "4")]
    pub routing_key: String,
    #[prost(message, optional, tag = "5")]
    pub properties: Option<Properties>,
    #[prost(bool, tag = "6")]
    pub redelivered: bool,
    #[prost(uint32, tag = "7")]
    pub delivery_count: u32,
    #[prost(uint64, tag = "8")]
    pub stored_at_ms: u64,
    #[prost(bytes = "vec", optional, tag = "9")]
    pub key: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetRequest {
    #[prost(string, tag = "1")]
    pub vhost: String,
    #[prost(string, tag = "2")]
    pub queue: String,
    #[prost(uint32, tag = "3")]
    pub count_max: u32,
    #[prost(bool, tag = "4")]
    pub auto_ack: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetResponse {
    #[prost(message, repeated, tag = "1")]
    pub deliveries: Vec<Delivery>,
    #[prost(uint64, tag = "2")]
    pub ready_count: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SettleRequest {
    #[prost(string, tag = "1")]
    pub vhost: String,
    #[prost(string, tag = "2")]
    pub queue: String,
    #[prost(message, optional, tag = "3")]
    pub settlement: Option<Settlement>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SettleResponse {
    #[prost(uint64, tag = "1")]
    pub settled_count: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadRequest {
    #[prost(oneof = "ReadContent", tags = "1, 2, 3")]
    pub request: Option<ReadContent>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ReadContent {
    #[prost(message, tag = "1")]
    Open(ReadOpen),
    #[prost(message, tag = "2")]
    Credit(Credit),
    #[prost(message, tag = "3")]
    Stored(Stored),
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadOpen {
    #[prost(string, tag = "1")]
    pub vhost: String,
    #[prost(string, tag = "2")]
    pub partition: String,
    #[prost(message, optional, tag = "3")]
    pub start: Option<Start>,
    #[prost(uint64, optional, tag = "4")]
    pub end: Option<u64>,
    #[prost(uint32, tag = "5")]
    pub credit: u32,
    #[prost(string, tag = "6")]
    pub group: String,
    #[prost(bool, tag = "7")]
    pub single_active: bool,
    #[prost(bool, tag = "8")]
    pub from_replica: bool,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Start {
    #[prost(oneof = "StartAt", tags = "1, 2, 3, 4")]
    pub at: Option<StartAt>,
}

#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub enum StartAt {
    #[prost(int32, tag = "1")]
    Place(i32),
    #[prost(uint64, tag = "2")]
    Offset(u64),
    #[prost(uint64, tag = "3")]
    TimestampMs(u64),
    #[prost(uint64, tag = "4")]
    LastCount(u64),
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Credit {
    #[prost(uint32, tag = "1")]
    pub responses: u32,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Stored {
    #[prost(uint64, tag = "1")]
    pub offset: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadResponse {
    #[prost(oneof = "ReadAnswer", tags = "1, 2, 3, 4")]
    pub response: Option<ReadAnswer>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ReadAnswer {
    #[prost(message, tag = "1")]
    Opened(ReadOpened),
    #[prost(message, tag = "2")]
    Deliveries(Deliveries),
    #[prost(message, tag = "3")]
    Cancelled(ReadCancelled),
    #[prost(message, tag = "4")]
    Active(Active),
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ReadOpened {
    #[prost(uint64, tag = "1")]
    pub first: u64,
    #[prost(uint64, tag = "2")]
    pub begin: u64,
    #[prost(uint64, tag = "3")]
    pub next: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadCancelled {
    #[prost(string, tag = "1")]
    pub reason: String,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Active {
    #[prost(bool, tag = "1")]
    pub active: bool,
    #[prost(uint64, tag = "2")]
    pub begin: u64,
}
