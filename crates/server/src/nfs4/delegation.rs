//! Read delegations: when an OPEN gets one, and who has to wait until it is back. RFC 8881 s10.2,
//! s10.4, s18.6, s18.16
//!
//! A client with a read delegation opens and caches the file without asking, until it is recalled.
//! So whatever changes the file, or its name, links or attributes, recalls the delegations of all
//! others first, and the caller is told to come again. A holder's own changes recall nothing of it.
//!
//! Only exports get any where all changes are seen here, and only clients that can be called back.
//! There are no delegations for writing, and none of directories.

use super::compound::{Compound, Outcome, of_wire, to_wire};
use super::open::{closed_file, of_current};
use super::status::of_state;
use crate::export::Export;
use crate::nfs4_state::{Change, file_name};
use crate::request::Target;
use fs::{Attributes, SetAttributes};
use nfs4::compound::RequestReader;
use nfs4::op::open::{Args, Claim, Delegation, DelegationType, NoDelegation, access};
use nfs4::op::{Args as AnyArgs, Fore};
use nfs4::{Ace, Stateid, Status};
use state::StateId;
use store::{Found, ObjectId};

/// WND4_WRITE_DELEG_NOT_SUPP_FTYPE. RFC 8881 s18.16.3
const NOT_FOR_WRITING: NoDelegation = NoDelegation::Other(4);

/// What a client wants with an OPEN.
enum Wanted {
    /// A delegation for reading, if there is one. Whether it has asked for it.
    Read { asked: bool },
    /// None, or none that there is.
    Refused(Delegation<'static>),
}

fn wanted(args: &Args<'_>) -> Wanted {
    let because = |why| Wanted::Refused(Delegation::NoneBecause(why));
    match args.claim {
        // The client has one, or had none.
        Claim::Previous(DelegationType::None) | Claim::DelegatedName { .. } | Claim::Delegated(_) => {
            return Wanted::Refused(Delegation::None);
        }
        // Since the restart, others may have changed the file, as nobody knew of the delegation.
        Claim::Previous(_) => return not_reclaimed(args.access & access::WANT_MASK),
        Claim::Name(_) | Claim::Current | Claim::PreviouslyDelegatedName(_) | Claim::PreviouslyDelegated => {}
    }
    let writes = args.access & access::WRITE != 0;
    match args.access & access::WANT_MASK {
        access::WANT_NONE => because(NoDelegation::NOT_WANTED),
        access::WANT_CANCEL => because(NoDelegation::CANCELLED),
        access::WANT_WRITE => because(NOT_FOR_WRITING),
        access::WANT_NO_PREFERENCE if writes => Wanted::Refused(Delegation::None),
        _ if writes => because(NOT_FOR_WRITING),
        other => Wanted::Read { asked: other != access::WANT_NO_PREFERENCE },
    }
}

/// What a client is told that wants its delegation of before a restart.
fn not_reclaimed(wants: u32) -> Wanted {
    Wanted::Refused(match wants {
        access::WANT_NO_PREFERENCE => Delegation::None,
        access::WANT_NONE => Delegation::NoneBecause(NoDelegation::NOT_WANTED),
        access::WANT_CANCEL => Delegation::NoneBecause(NoDelegation::CANCELLED),
        _ => Delegation::NoneBecause(NoDelegation::Contention(false)),
    })
}

/// The delegation that goes with an OPEN which has succeeded, or why there is none.
pub(super) fn granted(
    compound: &Compound<'_>,
    args: &Args<'_>,
    export: &Export,
    file: &[u8],
) -> Delegation<'static> {
    let asked = match wanted(args) {
        Wanted::Refused(why) => return why,
        Wanted::Read { asked } => asked,
    };
    let because = |why| if asked { Delegation::NoneBecause(why) } else { Delegation::None };
    if !export.config.delegations {
        return because(NoDelegation::NOT_SUPPORTED);
    }
    let Ok(ticket) = compound.ticket() else { return Delegation::None };
    let shared = compound.shared;
    match shared.state.delegate(shared.host(), compound.now, ticket, file) {
        Ok(Some(id)) => read(id),
        // Who cannot be called back lacks something; another one has the file open for writing or
        // locked, changes it, or has just wanted to, or the client has a delegation of it, or does
        // not give back what it is asked for.
        Ok(None) if shared.state.has_back_channel(ticket) == Ok(true) => {
            because(NoDelegation::Contention(false))
        }
        Ok(None) => because(NoDelegation::Resource(false)),
        Err(error) => {
            // It is a favour: the file is open without.
            tracing::debug!(%error, "nothing is delegated");
            because(NoDelegation::Resource(false))
        }
    }
}

/// A delegation as it is sent: nobody may open the file by it without asking the server.
pub(super) const fn read(id: StateId) -> Delegation<'static> {
    let permissions = Ace { kind: 0, flags: 0, mask: 0, who: b"" };
    Delegation::Read { stateid: to_wire(id), recall: false, permissions, with_times: false }
}

/// What an OPEN without a delegation says whose process has ended.
pub(super) fn none(args: &Args<'_>) -> Delegation<'static> {
    match wanted(args) {
        Wanted::Refused(why) => why,
        Wanted::Read { asked: true } => Delegation::NoneBecause(NoDelegation::Resource(false)),
        Wanted::Read { asked: false } => Delegation::None,
    }
}

/// Checks the right to open a file by a delegation: CLAIM_DELEGATE_CUR, CLAIM_DELEG_CUR_FH.
pub(super) fn check(
    compound: &Compound<'_>,
    export: &Export,
    object: ObjectId,
    (delegation, wanted): (Stateid, u8),
) -> Outcome<()> {
    let (id, file) = (of_wire(delegation), file_name(export, object));
    let checked = compound.shared.state.check_delegation(compound.client()?, id, &file, wanted);
    checked.map_err(|error| of_state(&error))
}

/// The delegation that is returned right after its file's attributes are asked for.
pub(super) fn returned_next(args: &AnyArgs<'_>, following: &RequestReader<'_, Fore>) -> Option<Stateid> {
    if !matches!(args, AnyArgs::GetAttr(_)) {
        return None;
    }
    match following.clone().next_operation()?.ok()?.args {
        AnyArgs::DelegReturn(args) => Some(args.delegation),
        _ => None,
    }
}

/// Refuses the attributes that go with the return of a delegation that has ended already. Linux
/// takes them for those of what it has cached, whether the delegation was good until then or not;
/// refused so, it returns the delegation without them.
pub(super) fn check_attributes_at_return(compound: &Compound<'_>) -> Outcome<()> {
    let Some(id) = compound.returned_next else { return Ok(()) };
    let (shared, id) = (compound.shared, compound.stateid(id)?);
    let tested = shared.state.test_state(shared.host(), compound.now, compound.client()?, id);
    tested.map_err(|error| match error {
        state::Error::BadStateId | state::Error::DelegationRevoked => Status::ACCESS,
        other => of_state(&other),
    })
}

/// DELEGRETURN.
pub(super) fn give_back(compound: &mut Compound<'_>, id: Stateid) -> Outcome<()> {
    let id = of_current(compound, id)?;
    let shared = compound.shared;
    let returned = shared.state.return_delegation(shared.host(), compound.now, compound.ticket()?, id);
    returned.map_err(|error| of_state(&error))?;
    given_back(compound)
}

/// The current file has a delegation less.
pub(super) fn given_back(compound: &mut Compound<'_>) -> Outcome<()> {
    closed_file(compound);
    Ok(())
}

impl<'a> Compound<'a> {
    /// Refuses what shows an object as it is by now, to a client whose delegation of it was revoked
    /// and not freed. The result of SEQUENCE has told the client so, but Linux takes attributes
    /// that come along for those of what it has cached. RFC 8881 s10.2.1, s15.1.1.3
    pub fn knows_of_loss(&self, export: &Export, object: ObjectId) -> Outcome<()> {
        let (state, client) = (&self.shared.state, self.client()?);
        if !state.has_revoked(client).map_err(|error| of_state(&error))? {
            return Ok(());
        }
        let checked = state.check_revoked(self.shared.host(), self.now, client, &file_name(export, object));
        checked.map_err(|error| of_state(&error))
    }

    /// Makes sure that no other client has a delegation of an object that is about to be changed,
    /// nor gets one before the change is dropped. RFC 8881 s10.4.1
    pub fn begin_change(&self, export: &Export, object: ObjectId) -> Outcome<Option<Change<'a>>> {
        self.knows_of_loss(export, object)?;
        let begun = self.shared.begin_change(self.now, Some(self.client()?), export, object);
        begun.map_err(|error| of_state(&error))
    }

    /// As [`begin_change`](Self::begin_change), of what a name in a directory is.
    pub fn begin_change_named(&self, at: &Target<'_>, name: &[u8]) -> Outcome<Option<Change<'a>>> {
        if !self.shared.is_heeded_in(at.export) {
            return Ok(None);
        }
        match at.find(name).and_then(|(_, found)| found) {
            Some(found) => self.begin_change(at.export, found.object),
            None => Ok(None),
        }
    }

    /// Sets the attributes of an object that a process may not have set which has ended.
    pub fn complete_attributes(
        &self,
        at: &Target<'_>,
        found: &Found,
        wanted: &SetAttributes,
    ) -> Outcome<Attributes> {
        let client = Some(self.client()?);
        let begun = self.shared.go_on_with_change(self.now, client, at.export, found.object);
        Ok(at.complete_attributes(found, wanted, begun.map_err(|_| fs::Status::Later)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfs4::StateOwner;
    use nfs4::op::open::How;

    fn asks(of_access: u32, claim: Claim<'static>) -> Option<Delegation<'static>> {
        let owner = StateOwner { client: nfs4::ClientId(1), owner: nfs4::OwnerId::default() };
        let args = Args { seqid: 0, access: of_access, deny: 0, owner, how: How::NoCreate, claim };
        match wanted(&args) {
            Wanted::Read { .. } => None,
            Wanted::Refused(why) => Some(why),
        }
    }

    // RFC 8881 s18.16.3
    #[test]
    fn a_client_gets_what_it_wants_or_is_told_why_not() {
        let because = |why| Some(Delegation::NoneBecause(why));
        let (read, both) = (access::READ, access::BOTH);
        for (of_access, expected) in [
            (read, None),
            (read | access::WANT_READ, None),
            (read | access::WANT_ANY, None),
            (read | access::WANT_NONE, because(NoDelegation::NOT_WANTED)),
            (read | access::WANT_CANCEL, because(NoDelegation::CANCELLED)),
            (read | access::WANT_WRITE, because(NOT_FOR_WRITING)),
            (both, Some(Delegation::None)),
            (both | access::WANT_ANY, because(NOT_FOR_WRITING)),
            (both | access::WANT_NONE, because(NoDelegation::NOT_WANTED)),
        ] {
            assert_eq!(asks(of_access, Claim::Current), expected, "{of_access:#x}");
        }
        // RFC 8881 s10.2.1: what may have changed since the restart is not given again.
        let reclaim = |of_access, kind| asks(of_access, Claim::Previous(kind));
        for kind in [DelegationType::None, DelegationType::Read, DelegationType::Write] {
            assert_eq!(reclaim(read, kind), Some(Delegation::None), "{kind:?}");
        }
        let contended = because(NoDelegation::Contention(false));
        assert_eq!(reclaim(read | access::WANT_READ, DelegationType::Read), contended);
        let not_wanted = because(NoDelegation::NOT_WANTED);
        assert_eq!(reclaim(read | access::WANT_NONE, DelegationType::Read), not_wanted);
        let delegated = Claim::Delegated(Stateid::default());
        assert_eq!(asks(read | access::WANT_READ, delegated), Some(Delegation::None));
    }
}
