//! TEST_STATEID and FREE_STATEID. RFC 8881 s18.48, s18.38

use super::compound::{Compound, Outcome, Replies, of_wire};
use super::status::of_state;
use nfs4::op::Reply;
use nfs4::op::stateid::{TestArgs, TestSuccess};
use nfs4::{Array, Operation, Stateid, Status};

/// The most stateids that one TEST_STATEID may ask about: each takes the lock of the state.
const TESTED_MAX: usize = 1024;

/// TEST_STATEID: what each of them is worth.
pub(super) fn test(compound: &mut Compound<'_>, args: &TestArgs<'_>, out: &mut Replies<'_>) -> Status {
    let client = match compound.client() {
        Ok(client) => client,
        Err(status) => return out.fail(Operation::TestStateid, status),
    };
    if args.stateids.iter().nth(TESTED_MAX).is_some() {
        return out.fail(Operation::TestStateid, Status::REP_TOO_BIG);
    }
    let worth = |id: Stateid| {
        // The special stateids name no state.
        if id.is_special() {
            return Status::BAD_STATEID;
        }
        let id = of_wire(id);
        let tested = compound.shared.state.test_state(compound.shared.host(), compound.now, client, id);
        tested.map_or_else(|error| of_state(&error), |()| Status::OK)
    };
    let statuses: Vec<_> = args.stateids.iter().map(worth).collect();
    out.push(&Reply::TestStateid(Ok(TestSuccess { statuses: Array::from(statuses.as_slice()) })))
}

/// FREE_STATEID.
pub(super) fn free(compound: &mut Compound<'_>, id: Stateid) -> Outcome<()> {
    let id = compound.stateid(id)?;
    let freed =
        compound.shared.state.free_state(compound.shared.host(), compound.now, compound.ticket()?, id);
    freed.map_err(|error| of_state(&error))
}
