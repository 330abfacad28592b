//! The trait of all messages and their parts, and its implementations for the basic types and for
//! the types of `fs` that look the same on the wire.

use crate::Status;
use fs::{Device, FileHandle, HANDLE_BYTES_MAX, Rights, Stability, Time};
use xdr::{Error, Reader, Result, Writer};

xdr::wire_trait!();

/// Names, link texts and other strings for which the standard sets no bound. The record bounds
/// them; whether a name is too long is for the file system to say. RFC 8881 s3.2 (component4)
impl<'a> Wire<'a> for &'a [u8] {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.opaque(u32::MAX)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.opaque(self);
    }
}

/// A union over a boolean, or an array of at most one item: both are written alike.
impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        match reader.length(1)? {
            0 => Ok(None),
            _ => T::decode(reader).map(Some),
        }
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.optional(self.as_ref(), |writer, item| item.encode(writer));
    }
}

/// The result of an operation of which a failure carries only its status. RFC 8881 s16.2.4
impl<'a, S: Wire<'a>> Wire<'a> for std::result::Result<S, Status> {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        match Status::decode(reader)? {
            Status::OK => S::decode(reader).map(Ok),
            status => Ok(Err(status)),
        }
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        match self {
            Ok(success) => {
                Status::OK.encode(writer);
                success.encode(writer);
            }
            Err(status) => {
                debug_assert!(*status != Status::OK, "a failure has a status of its own");
                status.encode(writer);
            }
        }
    }
}

/// `nfs_fh4`. RFC 8881 s3.2
impl<'a> Wire<'a> for FileHandle {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let max = HANDLE_BYTES_MAX as u32;
        let bytes = reader.opaque(max)?;
        // Never taken, as `opaque` has checked the same bound.
        Self::new(bytes).ok_or(Error::TooLong { len: u32::MAX, max })
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.opaque(self.as_slice());
    }
}

/// `nfstime4`. RFC 8881 s3.3.1
impl<'a> Wire<'a> for Time {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self { seconds: reader.u64()?.cast_signed(), nanoseconds: reader.u32()? })
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u64(self.seconds.cast_unsigned());
        writer.u32(self.nanoseconds);
    }
}

/// `specdata4`. RFC 8881 s3.3.4
impl<'a> Wire<'a> for Device {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        Ok(Self { major: reader.u32()?, minor: reader.u32()? })
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.major);
        writer.u32(self.minor);
    }
}

/// The bits of ACCESS. RFC 8881 s18.1
impl<'a> Wire<'a> for Rights {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        reader.u32().map(Self)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(self.0);
    }
}

/// `stable_how4`. RFC 8881 s18.32
impl<'a> Wire<'a> for Stability {
    #[inline]
    fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        match reader.u32()? {
            0 => Ok(Self::Unstable),
            1 => Ok(Self::DataSync),
            2 => Ok(Self::FileSync),
            value => Err(Error::BadDiscriminant { name: "stable_how4", value }),
        }
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u32(match self {
            Self::Unstable => 0,
            Self::DataSync => 1,
            Self::FileSync => 2,
        });
    }
}

pub(crate) use xdr::{wire_enum, wire_fields};

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8881 s3.3.1
    #[test]
    fn a_time_before_1970_has_negative_seconds() {
        let bytes = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 7];
        let time = Time { seconds: -2, nanoseconds: 7 };
        assert_eq!(Time::decode(&mut Reader::new(&bytes)), Ok(time));
        let mut out = Vec::new();
        time.encode(&mut Writer::new(&mut out));
        assert_eq!(out, bytes);
    }

    #[test]
    fn an_array_of_at_most_one_item_has_no_two() {
        let bytes = [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1];
        let error = Option::<u32>::decode(&mut Reader::new(&bytes));
        assert_eq!(error, Err(Error::TooLong { len: 2, max: 1 }));
    }

    // RFC 8881 s3.1 (NFS4_FHSIZE)
    #[test]
    fn a_handle_above_128_bytes_is_refused_by_its_length_alone() {
        let error = FileHandle::decode(&mut Reader::new(&[0, 0, 0, 129]));
        assert_eq!(error, Err(Error::TooLong { len: 129, max: 128 }));
    }
}
