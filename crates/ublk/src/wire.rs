//! Numbers and layouts of `linux/ublk_cmd.h`. All are in the order of the host.

use rustix::ioctl::opcode;

/// The device of the driver.
pub(crate) const CONTROL: &str = "/dev/ublk-control";

/// The bytes of `ublksrv_ctrl_cmd`, `ublksrv_ctrl_dev_info`, `ublksrv_io_cmd` and
/// `ublksrv_io_desc`.
pub(crate) const COMMAND_BYTES: usize = 32;
pub(crate) const INFO_BYTES: usize = 64;
pub(crate) const IO_COMMAND_BYTES: usize = 16;
pub(crate) const DESCRIPTOR_BYTES: usize = 24;

/// Commands to the driver, `UBLK_U_CMD_*`.
pub(crate) const GET_DEV_INFO: u32 = opcode::read::<[u8; COMMAND_BYTES]>(b'u', 0x02);
pub(crate) const ADD_DEV: u32 = opcode::read_write::<[u8; COMMAND_BYTES]>(b'u', 0x04);
pub(crate) const DEL_DEV: u32 = opcode::read_write::<[u8; COMMAND_BYTES]>(b'u', 0x05);
pub(crate) const START_DEV: u32 = opcode::read_write::<[u8; COMMAND_BYTES]>(b'u', 0x06);
pub(crate) const STOP_DEV: u32 = opcode::read_write::<[u8; COMMAND_BYTES]>(b'u', 0x07);
pub(crate) const SET_PARAMS: u32 = opcode::read_write::<[u8; COMMAND_BYTES]>(b'u', 0x08);
pub(crate) const START_USER_RECOVERY: u32 = opcode::read_write::<[u8; COMMAND_BYTES]>(b'u', 0x10);
pub(crate) const END_USER_RECOVERY: u32 = opcode::read_write::<[u8; COMMAND_BYTES]>(b'u', 0x11);
pub(crate) const GET_FEATURES: u32 = opcode::read::<[u8; COMMAND_BYTES]>(b'u', 0x13);

/// Commands to a queue, `UBLK_U_IO_*`.
pub(crate) const FETCH: u32 = opcode::read_write::<[u8; IO_COMMAND_BYTES]>(b'u', 0x20);
pub(crate) const COMMIT_AND_FETCH: u32 = opcode::read_write::<[u8; IO_COMMAND_BYTES]>(b'u', 0x21);

/// `UBLK_F_*`.
pub(crate) const USER_RECOVERY: u64 = 1 << 3;
pub(crate) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
pub(crate) const COMMANDS_ENCODED: u64 = 1 << 6;
pub(crate) const USER_COPY: u64 = 1 << 7;

/// Where the data of requests are in the character device: the tag is above 25 bits of offset.
pub(crate) const DATA_OFFSET: u64 = 0x8000_0000;
pub(crate) const TAG_SHIFT: u32 = 25;

/// `UBLK_IO_OP_*`, the low byte of a descriptor's first word, and two of `UBLK_IO_F_*` in the rest.
pub(crate) const READ: u32 = 0;
pub(crate) const WRITE: u32 = 1;
pub(crate) const FLUSH: u32 = 2;
pub(crate) const DISCARD: u32 = 3;
pub(crate) const WRITE_ZEROES: u32 = 5;
pub(crate) const FUA: u32 = 1 << 13;
pub(crate) const NO_UNMAP: u32 = 1 << 15;

/// `UBLK_ATTR_*`.
pub(crate) const ATTRIBUTE_READ_ONLY: u32 = 1 << 0;
pub(crate) const ATTRIBUTE_VOLATILE_CACHE: u32 = 1 << 2;
pub(crate) const ATTRIBUTE_FUA: u32 = 1 << 3;

/// `UBLK_PARAM_TYPE_*`.
const TYPE_BASIC: u32 = 1 << 0;
const TYPE_DISCARD: u32 = 1 << 1;

/// The state of a device, `UBLK_S_DEV_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Never started, or stopped.
    Dead,
    /// It is served, or its server has ended just now.
    Live,
    /// Its server has ended: requests wait, or fail.
    Left,
}

/// What the driver knows of a device: `ublksrv_ctrl_dev_info`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Info {
    pub(crate) queues: u16,
    pub(crate) depth: u16,
    pub(crate) state: State,
    pub(crate) request_bytes_max: u32,
    pub(crate) number: u32,
    pub(crate) pid: i32,
    pub(crate) flags: u64,
    /// `ublksrv_flags`: a number of the server's own, which the driver keeps.
    pub(crate) identity: u64,
}

fn put<const N: usize>(out: &mut [u8], at: usize, field: [u8; N]) {
    if let Some(place) = out.get_mut(at..at + N) {
        place.copy_from_slice(&field);
    }
}

fn take<const N: usize>(from: &[u8], at: usize) -> [u8; N] {
    from.get(at..at + N).and_then(|field| field.try_into().ok()).unwrap_or([0; N])
}

impl Info {
    pub(crate) fn encode(&self) -> [u8; INFO_BYTES] {
        let mut out = [0; INFO_BYTES];
        put(&mut out, 0, self.queues.to_ne_bytes());
        put(&mut out, 2, self.depth.to_ne_bytes());
        put(&mut out, 8, self.request_bytes_max.to_ne_bytes());
        put(&mut out, 12, self.number.to_ne_bytes());
        put(&mut out, 24, self.flags.to_ne_bytes());
        put(&mut out, 32, self.identity.to_ne_bytes());
        out
    }

    pub(crate) fn decode(from: &[u8; INFO_BYTES]) -> Self {
        Self {
            queues: u16::from_ne_bytes(take(from, 0)),
            depth: u16::from_ne_bytes(take(from, 2)),
            state: match u16::from_ne_bytes(take(from, 4)) {
                0 => State::Dead,
                1 => State::Live,
                _ => State::Left,
            },
            request_bytes_max: u32::from_ne_bytes(take(from, 8)),
            number: u32::from_ne_bytes(take(from, 12)),
            pid: i32::from_ne_bytes(take(from, 16)),
            flags: u64::from_ne_bytes(take(from, 24)),
            identity: u64::from_ne_bytes(take(from, 32)),
        }
    }
}

/// A command to the driver: `ublksrv_ctrl_cmd`, in a request of io_uring.
pub(crate) fn command(number: u32, address: u64, bytes: u16, data: u64) -> [u8; 80] {
    let mut out = [0; 80];
    put(&mut out, 0, number.to_ne_bytes());
    // Of no queue.
    put(&mut out, 4, u16::MAX.to_ne_bytes());
    put(&mut out, 6, bytes.to_ne_bytes());
    put(&mut out, 8, address.to_ne_bytes());
    put(&mut out, 16, data.to_ne_bytes());
    out
}

/// A command to queue 0: `ublksrv_io_cmd`.
pub(crate) fn io_command(tag: u16, result: i32) -> [u8; IO_COMMAND_BYTES] {
    let mut out = [0; IO_COMMAND_BYTES];
    put(&mut out, 2, tag.to_ne_bytes());
    put(&mut out, 4, result.to_ne_bytes());
    out
}

/// What a device is: the fields of `ublk_params` that are used, in sectors of 512 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) attributes: u32,
    pub(crate) logical_shift: u8,
    pub(crate) physical_shift: u8,
    pub(crate) preferred_shift: u8,
    pub(crate) sectors: u64,
    pub(crate) request_sectors_max: u32,
    /// 0 where a device cannot.
    pub(crate) discard_sectors_max: u32,
    pub(crate) zero_sectors_max: u32,
}

/// The bytes of `ublk_params` as far as they are used.
pub(crate) const PARAMETERS_BYTES: usize = 60;

impl Parameters {
    pub(crate) fn encode(&self) -> [u8; PARAMETERS_BYTES] {
        let mut out = [0; PARAMETERS_BYTES];
        put(&mut out, 0, (PARAMETERS_BYTES as u32).to_ne_bytes());
        put(&mut out, 8, self.attributes.to_ne_bytes());
        put(
            &mut out,
            12,
            [self.logical_shift, self.physical_shift, self.preferred_shift, self.physical_shift],
        );
        put(&mut out, 16, self.request_sectors_max.to_ne_bytes());
        put(&mut out, 24, self.sectors.to_ne_bytes());
        let mut types = TYPE_BASIC;
        if self.discard_sectors_max > 0 || self.zero_sectors_max > 0 {
            types |= TYPE_DISCARD;
            put(&mut out, 44, (1_u32 << self.physical_shift).to_ne_bytes());
            put(&mut out, 48, self.discard_sectors_max.to_ne_bytes());
            put(&mut out, 52, self.zero_sectors_max.to_ne_bytes());
            // The driver has no requests of several ranges.
            put(&mut out, 56, 1_u16.to_ne_bytes());
        }
        put(&mut out, 4, types.to_ne_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_header() {
        assert_eq!(ADD_DEV, 0xc020_7504);
        assert_eq!(GET_DEV_INFO, 0x8020_7502);
        assert_eq!(GET_FEATURES, 0x8020_7513);
        assert_eq!(FETCH, 0xc010_7520);
        assert_eq!(COMMIT_AND_FETCH, 0xc010_7521);
    }

    #[test]
    fn the_driver_returns_what_it_was_given_of_a_device() {
        let info = Info {
            queues: 1,
            depth: 128,
            state: State::Dead,
            request_bytes_max: 1 << 20,
            number: 7,
            pid: 0,
            flags: USER_COPY,
            identity: 0x0123_4567_89ab_cdef,
        };
        assert_eq!(Info::decode(&info.encode()), info);
        let mut served = info.encode();
        put(&mut served, 4, 2_u16.to_ne_bytes());
        put(&mut served, 16, 99_i32.to_ne_bytes());
        assert_eq!(Info::decode(&served), Info { state: State::Left, pid: 99, ..info });
    }

    #[test]
    fn parameters_are_where_the_driver_reads_them() {
        let parameters = Parameters {
            attributes: ATTRIBUTE_VOLATILE_CACHE | ATTRIBUTE_FUA,
            logical_shift: 9,
            physical_shift: 12,
            preferred_shift: 16,
            sectors: 2048,
            request_sectors_max: 256,
            discard_sectors_max: 4096,
            zero_sectors_max: 8192,
        };
        let out = parameters.encode();
        let word = |at| u32::from_ne_bytes(take(&out, at));
        assert_eq!([0, 4, 8, 16].map(word), [60, 3, 0b1100, 256]);
        assert_eq!(out.get(12..16), Some(&[9, 12, 16, 12][..]));
        assert_eq!(u64::from_ne_bytes(take(&out, 24)), 2048);
        assert_eq!([40, 44, 48, 52, 56].map(word), [0, 4096, 4096, 8192, 1]);
        let none = Parameters { discard_sectors_max: 0, zero_sectors_max: 0, ..parameters };
        assert_eq!(u32::from_ne_bytes(take(&none.encode(), 4)), TYPE_BASIC);
    }

    #[test]
    fn commands_are_where_the_driver_reads_them() {
        let out = command(3, 0x1122_3344_5566_7788, 64, 42);
        assert_eq!(out.get(..4), Some(&3_u32.to_ne_bytes()[..]));
        assert_eq!(out.get(4..8), Some(&[255, 255, 64, 0][..]));
        assert_eq!(u64::from_ne_bytes(take(&out, 8)), 0x1122_3344_5566_7788);
        assert_eq!(u64::from_ne_bytes(take(&out, 16)), 42);
        let io = io_command(5, -5);
        assert_eq!(io.get(..8), Some(&[0, 0, 5, 0, 0xfb, 0xff, 0xff, 0xff][..]));
    }
}
