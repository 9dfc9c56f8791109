//! The messages of a request as they come, and what they hold of the memory.
//!
//! A message counts until the next one is asked for, unless the reader keeps several of them and says when it is done.

use std::sync::Arc;

use bytes::Bytes;
use tonic::{Status, Streaming};

use crate::host::memory::Share;

/// What gRPC puts before a message.
const HEAD_BYTES: usize = 5;

/// See the module.
pub(crate) struct Input {
    messages: Streaming<Bytes>,
    share: Option<Arc<Share>>,
    /// The bytes of messages that were read and are not done with.
    read_bytes: usize,
}

impl Input {
    pub fn new(messages: Streaming<Bytes>, share: Option<Arc<Share>>) -> Input {
        Input { messages, share, read_bytes: 0 }
    }

    /// The next message; those before are done with.
    pub async fn message(&mut self) -> Result<Option<Bytes>, Status> {
        self.done();
        self.another().await
    }

    /// The next message; those before are kept.
    pub async fn another(&mut self) -> Result<Option<Bytes>, Status> {
        let message = self.messages.message().await?;
        self.read_bytes += message.as_ref().map_or(0, |message| HEAD_BYTES + message.len());
        Ok(message)
    }

    /// Gives back what the messages hold that were read.
    pub fn done(&mut self) {
        let bytes = std::mem::take(&mut self.read_bytes);
        if let Some(share) = self.share.as_ref().filter(|_| bytes > 0) {
            share.give_back(bytes);
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        self.done();
    }
}
