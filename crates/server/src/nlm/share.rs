//! SHARE and UNSHARE, which are refused: see the module `nlm`. RFC 1813 s6.3.14, s6.3.15

use nlm::proc::share::{Args, Reply};
use nlm::{Status, Wire};
use xdr::Writer;

/// Writes the results.
pub(super) fn run(args: &Args<'_>, results: &mut Vec<u8>) -> Status {
    let status = Status::FAILED;
    Reply { cookie: args.cookie, status, sequence: 0 }.encode(&mut Writer::new(results));
    status
}
