//! A call on its way to a server: the memory that its parts are read into, and how it is passed to
//! the sink.

use rpcrdma::holds;
use rpcrdma::server::Payload;

use super::{Buffer, Error};
use crate::{PayloadPlace, ReceiveBuffer, Sink, SlicesMut};

/// The memory read for a call.
#[derive(Debug)]
pub(super) struct Fetched<L> {
    pub message: Option<Buffer>,
    pub payload: Option<Buffer>,
    /// The payload was read into memory of the sink, this many bytes.
    pub placed: Option<(L, usize)>,
}

impl<L> Default for Fetched<L> {
    fn default() -> Self {
        Self { message: None, payload: None, placed: None }
    }
}

impl<L> Fetched<L> {
    pub fn bytes(&self) -> usize {
        let buffers = [&self.message, &self.payload].into_iter().flatten();
        let copied: usize = buffers.map(|buffer| buffer.region().bytes()).sum();
        copied + self.placed.as_ref().map_or(0, |(_, bytes)| *bytes)
    }
}

/// A complete call.
#[derive(Debug)]
pub(super) struct Call<L> {
    pub head: Vec<u8>,
    pub payload: Option<Payload>,
    pub fetched: Fetched<L>,
}

/// Passes a call to the sink, and its payload to the receive buffer of the sink if it is not there
/// yet. Returns how many bytes of payload were copied.
pub(super) fn hand_out<S: Sink>(call: Call<S::ReceiveBuffer>, sink: &mut S) -> Result<usize, Error> {
    let Call { head, payload, fetched } = call;
    if let Some((receive_buffer, _)) = fetched.placed {
        sink.received(&head, receive_buffer, &[]);
        return Ok(0);
    }
    let (Some(payload), Some(buffer)) = (payload, &fetched.payload) else {
        sink.record(&head);
        return Ok(0);
    };
    let (position, bytes) = (to_usize(payload.position), to_usize(payload.bytes));
    if let Some((mut receive_buffer, len)) = place_for(&head, payload, sink) {
        let mut pieces = SlicesMut::new();
        receive_buffer.unfilled(0, &mut pieces);
        let mut from = 0;
        for piece in &mut pieces {
            buffer.read(from, piece)?;
            from += piece.len();
        }
        drop(pieces);
        sink.received(&head, receive_buffer, &[]);
        return Ok(len);
    }
    // A smaller or unusual call becomes the record that it would be on a stream.
    let (before, after) = head.split_at_checked(position).unwrap_or((&head, &[]));
    let mut record = before.to_vec();
    record.resize(before.len() + bytes + xdr_padding(bytes), 0);
    if let Some(place) = record.get_mut(before.len()..before.len() + bytes) {
        buffer.read(0, place)?;
    }
    record.extend_from_slice(after);
    sink.record(&record);
    Ok(bytes)
}

/// Memory of the sink for the payload of a call, and its length without padding.
pub(super) fn place_for<S: Sink>(
    head: &[u8],
    payload: Payload,
    sink: &mut S,
) -> Option<(S::ReceiveBuffer, usize)> {
    let (position, bytes) = (to_usize(payload.position), to_usize(payload.bytes));
    if position != head.len() {
        return None;
    }
    let PayloadPlace { at, len, receive_buffer } =
        sink.choose_receive_buffer(head, position + bytes + xdr_padding(bytes))?;
    let fits = at == position && u32::try_from(len).is_ok_and(|len| holds(payload.bytes, len));
    fits.then_some((receive_buffer, len))
}

const fn xdr_padding(bytes: usize) -> usize {
    bytes.wrapping_neg() % 4
}

fn to_usize(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
