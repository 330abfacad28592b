//! Identify Controller. NVMe Base, "Identify Controller Data Structure (CNS 01h)"; its bytes 1792
//! to 2047 are those of NVMe over Fabrics.

use crate::layout::{flags, layout, numbers};
use crate::nqn::NQN_FIELD_BYTES;
use crate::register::Version;

flags! {
    /// CMIC: whether a subsystem has more ports and controllers, and reports ANA.
    pub struct MultiPath(u8) {
        /// More than one port.
        PORTS = 1 << 0,
        /// More than one controller. Without it, Linux refuses a second one.
        CONTROLLERS = 1 << 1,
        /// Asymmetric namespace access is reported.
        ANA = 1 << 3,
    }
}

flags! {
    /// Events: OAES of Identify Controller says which a controller has, and feature 0Bh which a
    /// host wants. The bits are the same. "Asynchronous Event Configuration"
    pub struct AsyncEvents(u32) {
        /// A namespace came, went or changed.
        NAMESPACE_CHANGED = 1 << 8,
        /// An ANA state changed.
        ANA_CHANGED = 1 << 11,
        /// The discovery log changed.
        DISCOVERY_CHANGED = 1 << 31,
    }
}

flags! {
    /// CTRATT: attributes of a controller.
    pub struct ControllerAttributes(u32) {
        /// Host identifiers have 128 bits.
        HOST_ID_128 = 1 << 0,
        /// TBKAS: any command keeps the controller alive, not only Keep Alive.
        TRAFFIC_KEEPS_ALIVE = 1 << 6,
        /// ELBAS: LBA formats beyond the first 16.
        EXTENDED_LBA_FORMATS = 1 << 15,
    }
}

numbers! {
    /// CNTRLTYPE: what a controller is for.
    pub struct CntrlType(u8) {
        /// Input and output.
        IO = 1,
        /// Discovery.
        DISCOVERY = 2,
        /// Administration.
        ADMINISTRATIVE = 3,
    }
}

flags! {
    /// LPA: what a controller can do with log pages.
    pub struct LogPageAttributes(u8) {
        /// The log of the effects of commands.
        COMMAND_EFFECTS = 1 << 1,
        /// Offsets, and lengths of 32 bits.
        EXTENDED = 1 << 2,
        /// The logs of supported log pages and of the effects of features.
        SUPPORTED_PAGES = 1 << 5,
    }
}

flags! {
    /// ANACAP: which ANA states a controller may report.
    pub struct AnaCapabilities(u8) {
        /// Optimized.
        OPTIMIZED = 1 << 0,
        /// Non-optimized.
        NON_OPTIMIZED = 1 << 1,
        /// Inaccessible.
        INACCESSIBLE = 1 << 2,
        /// Persistent loss.
        PERSISTENT_LOSS = 1 << 3,
        /// Change.
        CHANGE = 1 << 4,
        /// The group of a namespace does not change while it is attached.
        GROUP_FIXED = 1 << 6,
    }
}

flags! {
    /// ONCS: optional commands of the NVM command set, and features.
    pub struct OptionalCommands(u16) {
        /// Compare.
        COMPARE = 1 << 0,
        /// Dataset Management.
        DATASET_MANAGEMENT = 1 << 2,
        /// Write Zeroes.
        WRITE_ZEROES = 1 << 3,
        /// Reservations.
        RESERVATIONS = 1 << 5,
        /// The Timestamp feature.
        TIMESTAMP = 1 << 6,
        /// Verify.
        VERIFY = 1 << 7,
    }
}

flags! {
    /// SGLS: which SGLs a controller takes.
    pub struct SglSupport(u32) {
        /// SGLs at all, with any alignment.
        SUPPORTED = 1 << 0,
        /// Keyed descriptors (RDMA).
        KEYED = 1 << 2,
        /// An address in a data block descriptor may be an offset: data in capsules.
        IN_CAPSULE = 1 << 20,
        /// Transport descriptors (TCP).
        TRANSPORT = 1 << 21,
    }
}

/// FUSES bit 0: fused Compare and Write.
pub const FUSES_COMPARE_AND_WRITE: u16 = 1;

/// VWC bit 0: there is a volatile write cache, so that Flush means something.
pub const VWC_PRESENT: u8 = 1;

layout! {
    /// Identify Controller.
    pub struct Controller[4096] {
        /// The vendor by its PCI number, 0 if it has none.
        vid: u16 = 0,
        /// The vendor of the subsystem.
        ssvid: u16 = 2,
        /// The serial number of the subsystem, in ASCII, filled with blanks.
        serial: [u8; 20] = 4,
        /// The model, likewise.
        model: [u8; 40] = 24,
        /// The revision of the firmware, likewise.
        firmware: [u8; 8] = 64,
        /// CMIC.
        multi_path: MultiPath = 76,
        /// MDTS: the most data of a command, 4 KiB times 2 to the power of this; 0 for no limit.
        mdts: u8 = 77,
        /// The identifier of the controller, the same as Connect's.
        cntlid: u16 = 78,
        /// The version.
        version: Version = 80,
        /// OAES: the events that the controller reports.
        events: AsyncEvents = 92,
        /// CTRATT.
        attributes: ControllerAttributes = 96,
        /// CNTRLTYPE.
        kind: CntrlType = 111,
        /// CRDT 1 to 3: after which time a command is retried, in units of 100 ms.
        retry_delays_100_ms: [u16; 3] = 128,
        /// CIU: an instance of a controller, for Cross-Controller Reset (TP8028).
        instance: u8 = 135,
        /// CIRN: a random number of the instance, for Cross-Controller Reset (TP8028).
        instance_random: [u8; 8] = 136,
        /// OACS: optional admin commands.
        oacs: u16 = 256,
        /// ACL: how many Abort commands may be outstanding, minus one.
        abort_limit: u8 = 258,
        /// AERL: how many Asynchronous Event Requests may be outstanding, minus one.
        async_event_limit: u8 = 259,
        /// FRMW: slots of firmware.
        firmware_slots: u8 = 260,
        /// LPA.
        log_pages: LogPageAttributes = 261,
        /// ELPE: the entries of the error log, minus one.
        error_log_entries: u8 = 262,
        /// WCTEMP: the warning temperature in kelvins.
        warning_temperature: u16 = 266,
        /// CCTEMP: the critical temperature in kelvins.
        critical_temperature: u16 = 268,
        /// KAS: the granularity of the keep-alive timeout in units of 100 ms; 0 if there is none.
        keep_alive_100_ms: u16 = 320,
        /// ANATT: how long an ANA state of change may last, in seconds.
        ana_transition_s: u8 = 342,
        /// ANACAP.
        ana: AnaCapabilities = 343,
        /// ANAGRPMAX: the largest identifier of an ANA group.
        ana_group_max: u32 = 344,
        /// NANAGRPID: the number of ANA groups.
        ana_groups: u32 = 348,
        /// CQT: how long commands may still have effects after the loss of communication was
        /// noticed, in milliseconds (TP4129).
        quiesce_ms: u16 = 386,
        /// SQES: the smallest and largest submission queue entries as powers of two; 66h.
        sqes: u8 = 512,
        /// CQES: likewise for completions; 44h.
        cqes: u8 = 513,
        /// MAXCMD: how many commands a controller takes on a queue at once.
        maxcmd: u16 = 514,
        /// NN: the largest NSID.
        nn: u32 = 516,
        /// ONCS.
        optional_commands: OptionalCommands = 520,
        /// FUSES: which fused pairs there are.
        fuses: u16 = 522,
        /// VWC: the volatile write cache, and what Flush with all namespaces does.
        vwc: u8 = 525,
        /// AWUN: which length is written atomically, in blocks, minus one.
        awun: u16 = 526,
        /// AWUPF: likewise at a power failure.
        awupf: u16 = 528,
        /// ACWU: likewise for fused Compare and Write.
        acwu: u16 = 532,
        /// SGLS.
        sgls: SglSupport = 536,
        /// MNAN: the most namespaces; with ANA not 0 and at most NN.
        mnan: u32 = 540,
        /// The name of the subsystem, filled with NULs.
        subnqn: [u8; NQN_FIELD_BYTES] = 768,
        /// IOCCSZ: the length of command capsules on I/O queues in units of 16 bytes, at least 4.
        ioccsz: u32 = 1792,
        /// IORCSZ: the length of responses in units of 16 bytes, at least 1.
        iorcsz: u32 = 1796,
        /// ICDOFF: where data begin in a capsule after its command, in units of 16 bytes.
        icdoff: u16 = 1800,
        /// FCATT: bit 0 clear for the dynamic controller model.
        fcatt: u8 = 1802,
        /// MSDBD: the most descriptors in the capsule.
        msdbd: u8 = 1803,
        /// OFCS: bit 0 if the Disconnect command is supported.
        ofcs: u16 = 1804,
        /// DCTYPE: the kind of a discovery controller, 1 for a direct one.
        discovery_type: u8 = 1806,
        /// CCRL: how many Cross-Controller Resets may be under way (TP8028).
        cross_reset_limit: u8 = 1807,
        /// Vendor-specific: whether there is [`END_CONTROLLER`](crate::end_controller).
        end_signature: [u8; 8] = 3072,
        /// Vendor-specific: who may be asked to end it; nodes of one process have one number.
        end_node: u32 = 3080,
        /// Vendor-specific: which of the controllers of that number, ever, this one is.
        end_instance: u64 = 3088,
    }
}
