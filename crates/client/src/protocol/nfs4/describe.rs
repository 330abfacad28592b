//! What a call asks for, for the log.

use ::nfs4::Operation;
use ::nfs4::compound::RequestReader;
use ::nfs4::op::{Args, Fore, open};

/// The operation that a call is named for, with the handle and the name in its compound, as far as
/// it has these.
pub(crate) fn describe(operation: Operation, compound: &[u8]) -> String {
    let named = operation.name();
    let (mut handle, mut name) = (None, None);
    if let Ok(mut requests) = RequestReader::<Fore>::new(compound) {
        while let Some(Ok(request)) = requests.next_operation() {
            match request.args {
                Args::PutFh(put) => _ = handle.get_or_insert(put.handle),
                Args::Lookup(lookup) => name = Some(lookup.name),
                Args::Create(create) => name = Some(create.name),
                Args::Remove(remove) => name = Some(remove.name),
                Args::Rename(rename) => name = Some(rename.old),
                Args::Open(open) => {
                    if let open::Claim::Name(of) = open.claim {
                        name = Some(of);
                    }
                }
                _ => {}
            }
        }
    }
    match (handle, name) {
        (Some(handle), Some(name)) => {
            format!("{named} of \"{}\" in the directory with handle {handle}", name.escape_ascii())
        }
        (Some(handle), None) => format!("{named} of the object with handle {handle}"),
        (None, _) => named.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::nfs4::operations;
    use fs::FileHandle;

    #[test]
    fn a_call_is_described_by_its_operation_handle_and_name() {
        let handle = FileHandle::new(&[0xab, 0xcd]).unwrap();
        let described = |request: crate::protocol::Request| request.procedure().describe(request.args());
        let named = "REMOVE of \"a\\nc\" in the directory with handle abcd";
        assert_eq!(described(operations::remove(1, handle, b"a\nc").into_request()), named);
        let plain = "GETATTR of the object with handle abcd";
        assert_eq!(described(operations::getattr(2, handle).into_request()), plain);
        assert_eq!(described(operations::sequence(2).into_request()), "SEQUENCE");
        assert_eq!(describe(Operation::Remove, &[0, 0, 0]), "REMOVE");
    }
}
