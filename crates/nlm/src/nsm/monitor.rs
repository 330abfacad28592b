//! MON, UNMON and UNMON_ALL: a program asks the NSM of its own host to tell it of restarts of
//! another host, and ends that. XNFS s11

use crate::Text;
use crate::wire::wire_fields;

/// `my_id`: the procedure of the program that is to be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller<'a> {
    /// The host of that program, which is NSM's own.
    pub name: Text<'a>,
    /// The program number.
    pub program: u32,
    /// The version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
}

wire_fields!(Caller<'a> { name, program, version, procedure });

/// `mon_id`: the arguments of UNMON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Id<'a> {
    /// The host that is monitored.
    pub host: Text<'a>,
    /// Who is told.
    pub caller: Caller<'a>,
}

wire_fields!(Id<'a> { host, caller });

/// `mon`: the arguments of MON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a> {
    /// The host, and who is told.
    pub id: Id<'a>,
    /// What the program is told together with the restart (`priv`).
    pub private: [u8; 16],
}

wire_fields!(Args<'a> { id, private });

/// The results of MON: `sm_stat_res`.
pub type Reply = super::stat::Reply;
