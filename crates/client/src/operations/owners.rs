//! Results with owners that may be names, and owners that are set. RFC 8881 s5.9

use fs::{Attributes, FileHandle, SetAttributes, Status, Time};

use super::Operations;
use crate::error::{Error, Result};
use crate::mount::Mount;
use crate::owners::{DECODES_MAX, Names, Owners, SetOwners};
use crate::protocol::{Reading, is_bad_owner};

impl Mount {
    /// Decodes the results of a call. Names of owners that are not known are looked up first.
    pub(crate) async fn decode<T>(&self, reading: &Reading<T>, results: &[u8]) -> Result<T> {
        let Some(owners) = self.owners() else { return reading.read(results) };
        let mut decodes = 1;
        loop {
            let names = Names::of(owners);
            let decoded = reading.read_with(results, &names);
            let missing = names.into_missing();
            // What was looked up and is unknown again had no room: it is nobody.
            if missing.is_empty() || decodes == DECODES_MAX {
                return decoded;
            }
            drop(decoded);
            owners.look_up(missing).await;
            decodes += 1;
        }
    }
}

impl Operations<'_> {
    /// Sets owners: as numbers, or as names where the server takes no numbers.
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
        let names = owners.names_of(&new).await;
        let by_name = self.protocol().setattr_by_name(object, new, guard, &names);
        let set = self.run(by_name.unwrap_or_else(|| self.protocol().setattr(object, new, guard))).await;
        match set {
            Err(error) if is_bad_owner(&error) => {
                Err(Error::Status { operation: "SETATTR", status: Status::NotPermitted })
            }
            set => {
                if set.is_ok() && names != SetOwners::default() {
                    owners.names_were_taken();
                }
                set
            }
        }
    }
}
