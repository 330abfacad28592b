//! Results with owners that may be names, and owners that are set. RFC 8881 s5.9

use std::time::Instant;

use fs::{Attributes, FileHandle, SetAttributes, Status, Time};

use super::Operations;
use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::owners::{Names, Owners, SetOwners, Unanswered};
use crate::protocol::{Reading, is_bad_owner};

const SET: &str = "SETATTR";

impl Mount {
    /// Decodes the results of a call. Names of owners that are not known are looked up first.
    pub(crate) async fn decode<T>(&self, reading: &Reading<T>, results: &[u8]) -> Result<T> {
        let Some(owners) = self.owners() else { return reading.read(results) };
        let names = Names::of(owners);
        let decoded = reading.read_with(results, &names);
        if !names.lacks_any() {
            return decoded;
        }
        drop(decoded);
        reading.read_with(results, &names.looked_up().await)
    }
}

impl Operations<'_> {
    /// Sets owners: as names to a server that has names or takes no numbers, otherwise as numbers.
    pub(super) async fn set_owners(
        &self,
        owners: &Owners,
        object: FileHandle,
        new: SetAttributes,
        guard: Option<Time>,
    ) -> Result<Option<Attributes>> {
        if !owners.sends_names() {
            match self.run(self.protocol().setattr(object, new, guard)).await {
                Err(error) if is_bad_owner(&error) => {}
                set => return set,
            }
        }
        let begun = Instant::now();
        // A number in place of a name may be somebody else's at the server.
        let names = owners.names_of(&new).await.map_err(|Unanswered| {
            tracing::warn!("no owner is set: the user database does not say which name it has");
            Error::TimedOut { operation: SET, waited: begun.elapsed() }
        })?;
        let by_name = self.protocol().setattr_by_name(object, new, guard, &names);
        let set = self.run(by_name.unwrap_or_else(|| self.protocol().setattr(object, new, guard))).await;
        match set {
            Err(error) if is_bad_owner(&error) => {
                Err(Error::Status { operation: SET, status: Status::NotPermitted })
            }
            set => {
                if set.is_ok() && names != SetOwners::default() {
                    owners.names_are_used();
                }
                set
            }
        }
    }
}
