//! Two nodes that own volumes, their processes, locks, disks and connection, with a virtual clock:
//! what happens in named cases, and what never happens in random ones.

mod cases;
mod histories;
mod world;
