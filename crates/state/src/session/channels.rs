//! The attributes of a session's channels (`channel_attrs4`), as numbers. RFC 8881 s18.36

use crate::arena::{lower, pair, upper};
use crate::record::CHANNELS_WORDS;

/// The least that a request and a response need: SEQUENCE and an operation with a file handle.
const CHANNEL_BYTES_MIN: u32 = 256;

/// One channel. `ca_headerpadsize` is always granted as 0, and `ca_rdma_ird` is the transport's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChannelAttributes {
    /// `ca_maxrequestsize`.
    pub request_bytes: u32,
    /// `ca_maxresponsesize`.
    pub response_bytes: u32,
    /// `ca_maxresponsesize_cached`.
    pub cached_bytes: u32,
    /// `ca_maxoperations`.
    pub operations: u32,
    /// `ca_maxrequests`: the number of slots.
    pub requests: u32,
}

/// Both channels of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionChannels {
    /// For requests of the client.
    pub fore: ChannelAttributes,
    /// For call-backs.
    pub back: ChannelAttributes,
    /// CREATE_SESSION4_FLAG_CONN_BACK_CHAN
    pub back_channel: bool,
}

impl ChannelAttributes {
    fn within(self, limits: Self) -> Self {
        Self {
            request_bytes: self.request_bytes.min(limits.request_bytes),
            response_bytes: self.response_bytes.min(limits.response_bytes),
            cached_bytes: self.cached_bytes.min(limits.cached_bytes),
            operations: self.operations.min(limits.operations),
            requests: self.requests.min(limits.requests),
        }
    }
}

impl SessionChannels {
    /// At most what `limits` allows, in every attribute. RFC 8881 s18.36.3
    pub(crate) fn within(self, limits: &Self) -> Self {
        Self {
            fore: self.fore.within(limits.fore),
            back: self.back.within(limits.back),
            back_channel: self.back_channel && limits.back_channel,
        }
    }

    /// Whether a session with these attributes could be used.
    pub(crate) fn are_usable(&self) -> bool {
        let bytes = self.fore.request_bytes.min(self.fore.response_bytes);
        bytes >= CHANNEL_BYTES_MIN && self.fore.operations > 0 && self.fore.requests > 0
    }

    pub(crate) fn to_words(self) -> [u64; CHANNELS_WORDS] {
        let (fore, back) = (self.fore, self.back);
        [
            pair(fore.request_bytes, fore.response_bytes),
            pair(fore.cached_bytes, fore.operations),
            pair(fore.requests, back.requests),
            pair(back.request_bytes, back.response_bytes),
            pair(back.cached_bytes, back.operations),
            u64::from(self.back_channel),
            0,
        ]
    }

    pub(crate) fn of_words(words: [u64; CHANNELS_WORDS]) -> Self {
        let channel = |sizes: u64, more: u64, requests: u32| ChannelAttributes {
            request_bytes: upper(sizes),
            response_bytes: lower(sizes),
            cached_bytes: upper(more),
            operations: lower(more),
            requests,
        };
        let fore = channel(words[0], words[1], upper(words[2]));
        let back = channel(words[3], words[4], lower(words[2]));
        Self { fore, back, back_channel: words[5] != 0 }
    }
}
