//! The port mapper, if this server has its port. RFC 1833

use crate::group::Group;
use crate::program::{Answered, Call, PlacedWrite, Program};
use crate::statistics::Names;
use rpc::portmap::{self, Protocol};
use std::ops::RangeInclusive;

/// See the module's documentation.
pub(crate) struct PortMapper;

impl Program for PortMapper {
    fn number(&self) -> u32 {
        portmap::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        portmap::VERSION_PORTMAP..=portmap::VERSION_MAX
    }

    fn procedures(&self) -> Names {
        &[]
    }

    fn protocols(&self) -> &'static [Protocol] {
        &[Protocol::Tcp, Protocol::Udp]
    }

    fn is_served(&self, group: &Group) -> bool {
        group.portmap.get().is_some()
    }

    fn needs_identity(&self) -> bool {
        false
    }

    fn serve(&self, call: Call<'_, '_>, _placed: Option<PlacedWrite>) -> Answered {
        let entries = call.group.portmap.get().map(Vec::as_slice).unwrap_or_default();
        let via = portmap::Via { protocol: call.protocol, local: call.client.local.ip() };
        portmap::answer(call.header, call.reader, via, entries, call.out);
        Answered::reply(false)
    }
}
