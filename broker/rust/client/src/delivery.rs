//! Messages as they arrived: the parts of each are slices of its response, which is kept until the last of its
//! deliveries was read. A response is parsed once, on the thread that received it; reading is only slicing.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use penstock_wire::WireError;
use penstock_wire::grpc::{DeliveriesView, DeliveryView};

/// Some deliveries of one response, in its order.
#[derive(Debug, Clone)]
pub struct Deliveries {
    response: Arc<Response>,
    range: Range<usize>,
}

#[derive(Debug)]
struct Response {
    chunk: Bytes,
    /// The consumer's connection that received it.
    connection: u64,
    entries: Vec<Entry>,
}

/// One parsed message. Names are not checked to be UTF-8; `properties` is a serialised `penstock.v1.Properties`.
pub type Delivery<'a> = DeliveryView<'a>;

#[derive(Debug)]
struct Entry {
    body: Range<u32>,
    exchange: Range<u32>,
    routing_key: Range<u32>,
    properties: Option<Range<u32>>,
    key: Option<Range<u32>>,
    sequence: u64,
    stored_at_ms: u64,
    delivery_count: u32,
    redelivered: bool,
}

impl Deliveries {
    /// `view` must be in `chunk`, which is smaller than 4 GiB as no response may be larger.
    pub(crate) fn read(
        chunk: &Bytes,
        view: DeliveriesView<'_>,
        connection: u64,
        count_expected: usize,
    ) -> Result<Self, WireError> {
        let mut entries = Vec::with_capacity(count_expected);
        for delivery in view {
            entries.push(Entry::new(chunk, &delivery?));
        }
        let range = 0..entries.len();
        Ok(Self { response: Arc::new(Response { chunk: chunk.clone(), connection, entries }), range })
    }

    pub fn len(&self) -> usize {
        self.range.len()
    }

    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Size of their response, which stays in memory until the last of it was read.
    pub(crate) fn response_bytes(&self) -> usize {
        self.response.chunk.len()
    }

    /// The consumer's connection that received them.
    pub fn connection(&self) -> u64 {
        self.response.connection
    }

    pub fn iter(&self) -> impl Iterator<Item = Delivery<'_>> {
        self.entries().iter().map(|entry| entry.view(&self.response.chunk))
    }

    /// How many of the first ones satisfy `is_first`.
    pub(crate) fn count_first(&self, is_first: impl Fn(u64) -> bool) -> usize {
        self.entries().iter().take_while(|entry| is_first(entry.sequence)).count()
    }

    pub(crate) fn last_sequence(&self) -> Option<u64> {
        self.entries().last().map(|entry| entry.sequence)
    }

    fn entries(&self) -> &[Entry] {
        self.response.entries.get(self.range.clone()).unwrap_or_default()
    }

    /// Removes the first `count`, or all when there are fewer.
    pub(crate) fn split_front(&mut self, count: usize) -> Self {
        let middle = self.range.start + count.min(self.len());
        let front = Self { response: Arc::clone(&self.response), range: self.range.start..middle };
        self.range.start = middle;
        front
    }
}

impl Entry {
    #[inline]
    fn new(chunk: &Bytes, view: &DeliveryView<'_>) -> Self {
        let place = |part: &[u8]| {
            let start = (part.as_ptr() as usize).saturating_sub(chunk.as_ptr() as usize);
            // An empty part may point anywhere.
            if part.is_empty() { 0..0 } else { start as u32..(start + part.len()) as u32 }
        };
        Self {
            body: place(view.body),
            exchange: place(view.exchange),
            routing_key: place(view.routing_key),
            properties: view.properties.map(place),
            key: view.key.map(place),
            sequence: view.sequence,
            stored_at_ms: view.stored_at_ms,
            delivery_count: view.delivery_count,
            redelivered: view.redelivered,
        }
    }

    #[inline]
    fn view<'a>(&self, chunk: &'a Bytes) -> Delivery<'a> {
        let part = |range: &Range<u32>| chunk.get(range.start as usize..range.end as usize).unwrap_or_default();
        Delivery {
            sequence: self.sequence,
            body: part(&self.body),
            exchange: part(&self.exchange),
            routing_key: part(&self.routing_key),
            properties: self.properties.as_ref().map(part),
            redelivered: self.redelivered,
            delivery_count: self.delivery_count,
            stored_at_ms: self.stored_at_ms,
            key: self.key.as_ref().map(part),
        }
    }
}
