//! The C layouts of libibverbs and librdmacm that we touch, for 64-bit Linux. They are part of
//! those libraries' binary interface (symbol versions IBVERBS_1.1 and RDMACM_1.0) and have been the
//! same since 2010; their sizes and offsets are asserted when we build, from a C compiler's word.
//! Structures that only the libraries look into are declared as far as we read them and never made
//! or copied here.

use libc::{c_char, c_int, c_uint, c_void, sockaddr_storage};
use std::mem::{offset_of, size_of};

/// A pointer that is only passed on.
pub(crate) type Opaque = *mut c_void;

#[repr(C)]
pub(crate) struct Device {
    ops: [Opaque; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; 64],
    pub(crate) dev_name: [c_char; 64],
    pub(crate) dev_path: [c_char; 256],
    pub(crate) ibdev_path: [c_char; 256],
}

/// The calls that C reaches through inline functions: a table in each context, filled by the
/// device's driver.
#[repr(C)]
pub(crate) struct ContextOps {
    before_alloc_mw: [Opaque; 7],
    pub(crate) alloc_mw: Option<unsafe extern "C" fn(*mut Pd, c_uint) -> *mut Mw>,
    bind_mw: Opaque,
    pub(crate) dealloc_mw: Option<unsafe extern "C" fn(*mut Mw) -> c_int>,
    before_poll_cq: Opaque,
    pub(crate) poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub(crate) req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    before_post_send: [Opaque; 12],
    pub(crate) post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub(crate) post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    after_post_recv: [Opaque; 5],
}

#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *mut Device,
    pub(crate) ops: ContextOps,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
}

/// Opaque to us.
#[repr(C)]
pub(crate) struct Pd {
    pub(crate) context: *mut Context,
}

#[repr(C)]
pub(crate) struct Mr {
    context: *mut Context,
    pd: *mut Pd,
    addr: *mut c_void,
    length: usize,
    handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// A memory window. Its key changes with each bind that is posted; the field is ours to keep.
#[repr(C)]
pub(crate) struct Mw {
    pub(crate) context: *mut Context,
    pd: *mut Pd,
    pub(crate) rkey: u32,
    handle: u32,
    kind: c_uint,
}

/// Filled by the library; we read one field.
#[repr(C, align(8))]
pub(crate) struct DeviceAttr {
    before_flags: [u8; 116],
    pub(crate) device_cap_flags: c_uint,
    after_flags: [u8; 112],
}

impl DeviceAttr {
    pub(crate) const fn new() -> Self {
        Self { before_flags: [0; 116], device_cap_flags: 0, after_flags: [0; 112] }
    }
}

#[repr(C)]
pub(crate) struct CompChannel {
    context: *mut Context,
    pub(crate) fd: c_int,
    refcnt: c_int,
}

#[repr(C)]
pub(crate) struct Cq {
    pub(crate) context: *mut Context,
    channel: *mut CompChannel,
    cq_context: *mut c_void,
    handle: u32,
    pub(crate) cqe: c_int,
}

#[repr(C)]
pub(crate) struct Qp {
    pub(crate) context: *mut Context,
    qp_context: *mut c_void,
    pd: *mut Pd,
    send_cq: *mut Cq,
    recv_cq: *mut Cq,
    srq: Opaque,
    handle: u32,
    pub(crate) qp_num: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

#[repr(C)]
pub(crate) struct RecvWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut RecvWr,
    pub(crate) sg_list: *mut Sge,
    pub(crate) num_sge: c_int,
}

#[repr(C)]
pub(crate) struct SendWr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut SendWr,
    pub(crate) sg_list: *mut Sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_uint,
    pub(crate) send_flags: c_uint,
    /// The key to invalidate, or immediate data.
    pub(crate) invalidate_rkey: u32,
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    /// The rest of a union for atomic operations and datagrams, and another for what we don't use.
    rest: [u64; 3],
    pub(crate) bind: BindMw,
}

/// A member of the last union of a [`SendWr`], and its largest.
#[repr(C)]
pub(crate) struct BindMw {
    pub(crate) mw: *mut Mw,
    pub(crate) rkey: u32,
    pub(crate) mr: *mut Mr,
    pub(crate) addr: u64,
    pub(crate) length: u64,
    pub(crate) access: c_uint,
}

impl SendWr {
    pub(crate) const fn new() -> Self {
        Self {
            wr_id: 0,
            next: std::ptr::null_mut(),
            sg_list: std::ptr::null_mut(),
            num_sge: 0,
            opcode: 0,
            send_flags: 0,
            invalidate_rkey: 0,
            remote_addr: 0,
            rkey: 0,
            rest: [0; 3],
            bind: BindMw {
                mw: std::ptr::null_mut(),
                rkey: 0,
                mr: std::ptr::null_mut(),
                addr: 0,
                length: 0,
                access: 0,
            },
        }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Wc {
    pub(crate) wr_id: u64,
    pub(crate) status: c_uint,
    pub(crate) opcode: c_uint,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// Immediate data, or the key that a message has invalidated.
    pub(crate) invalidated_rkey: u32,
    pub(crate) qp_num: u32,
    src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pkey_index: u16,
    slid: u16,
    sl: u8,
    dlid_path_bits: u8,
}

#[repr(C)]
pub(crate) struct QpCap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

#[repr(C)]
pub(crate) struct QpInitAttr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: Opaque,
    pub(crate) cap: QpCap,
    pub(crate) qp_type: c_uint,
    pub(crate) sq_sig_all: c_int,
}

/// Filled by the library; we read four fields.
#[repr(C, align(8))]
pub(crate) struct PortAttr {
    pub(crate) state: c_uint,
    pub(crate) max_mtu: c_uint,
    pub(crate) active_mtu: c_uint,
    pub(crate) gid_tbl_len: c_int,
    unused: [u8; 30],
    pub(crate) link_layer: u8,
    /// The library of today writes up to byte 52; there is room for what older and newer ones
    /// write.
    spare: [u8; 81],
}

impl PortAttr {
    pub(crate) const fn new() -> Self {
        Self {
            state: 0,
            max_mtu: 0,
            active_mtu: 0,
            gid_tbl_len: 0,
            unused: [0; 30],
            link_layer: 0,
            spare: [0; 81],
        }
    }
}

#[repr(C)]
pub(crate) struct EventChannel {
    pub(crate) fd: c_int,
}

#[repr(C)]
pub(crate) struct CmId {
    pub(crate) verbs: *mut Context,
    channel: *mut EventChannel,
    pub(crate) context: *mut c_void,
    pub(crate) qp: *mut Qp,
    pub(crate) src_addr: sockaddr_storage,
    pub(crate) dst_addr: sockaddr_storage,
}

#[repr(C)]
pub(crate) struct ConnParam {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

#[repr(C)]
pub(crate) struct CmEvent {
    pub(crate) id: *mut CmId,
    pub(crate) listen_id: *mut CmId,
    pub(crate) event: c_uint,
    pub(crate) status: c_int,
    /// The larger part of a union.
    pub(crate) conn: ConnParam,
}

// Values of the libraries' enumerations.
pub(crate) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(crate) const ACCESS_REMOTE_WRITE: c_int = 2;
pub(crate) const ACCESS_REMOTE_READ: c_int = 4;
pub(crate) const ACCESS_MW_BIND: c_int = 16;
pub(crate) const MW_TYPE_2: c_uint = 2;
pub(crate) const DEVICE_MEM_WINDOW_TYPE_2B: c_uint = 1 << 24;
pub(crate) const QPT_RC: c_uint = 2;
pub(crate) const WR_RDMA_WRITE: c_uint = 0;
pub(crate) const WR_SEND: c_uint = 2;
pub(crate) const WR_RDMA_READ: c_uint = 4;
pub(crate) const WR_LOCAL_INV: c_uint = 7;
pub(crate) const WR_BIND_MW: c_uint = 8;
pub(crate) const WR_SEND_WITH_INV: c_uint = 9;
pub(crate) const SEND_FENCE: c_uint = 1;
pub(crate) const SEND_SIGNALED: c_uint = 2;
pub(crate) const WC_WITH_IMM: c_uint = 2;
pub(crate) const WC_WITH_INV: c_uint = 8;
/// The number of the same flag in the kernel, which Soft-RoCE passes on as it is.
pub(crate) const WC_WITH_INV_OF_KERNEL: c_uint = 4;
pub(crate) const WC_RECV: c_uint = 128;
pub(crate) const WC_RETRY_EXCEEDED: c_uint = 12;
pub(crate) const WC_RECEIVER_RETRY_EXCEEDED: c_uint = 13;
pub(crate) const PS_TCP: c_uint = 0x0106;
pub(crate) const PORT_ACTIVE: c_uint = 4;
pub(crate) const LINK_LAYER_ETHERNET: u8 = 2;

const _: () = {
    assert!(
        size_of::<Device>() == 664 && offset_of!(Device, name) == 24 && offset_of!(Device, ibdev_path) == 408
    );
    assert!(size_of::<ContextOps>() == 256);
    assert!(offset_of!(Context, ops) + offset_of!(ContextOps, alloc_mw) == 64);
    assert!(offset_of!(Context, ops) + offset_of!(ContextOps, dealloc_mw) == 80);
    assert!(offset_of!(Context, ops) + offset_of!(ContextOps, poll_cq) == 96);
    assert!(offset_of!(Context, ops) + offset_of!(ContextOps, req_notify_cq) == 104);
    assert!(offset_of!(Context, ops) + offset_of!(ContextOps, post_send) == 208);
    assert!(offset_of!(Context, ops) + offset_of!(ContextOps, post_recv) == 216);
    assert!(offset_of!(Context, cmd_fd) == 264 && offset_of!(Context, num_comp_vectors) == 272);
    assert!(size_of::<Mr>() == 48 && offset_of!(Mr, lkey) == 36 && offset_of!(Mr, rkey) == 40);
    assert!(size_of::<Mw>() == 32 && offset_of!(Mw, rkey) == 16 && offset_of!(Mw, kind) == 24);
    assert!(size_of::<DeviceAttr>() == 232 && offset_of!(DeviceAttr, device_cap_flags) == 116);
    assert!(size_of::<CompChannel>() == 16 && offset_of!(Cq, cqe) == 28 && offset_of!(Qp, qp_num) == 52);
    assert!(size_of::<Sge>() == 16 && size_of::<RecvWr>() == 32);
    assert!(
        size_of::<SendWr>() == 128
            && offset_of!(SendWr, opcode) == 28
            && offset_of!(SendWr, remote_addr) == 40
    );
    assert!(offset_of!(SendWr, invalidate_rkey) == 36 && offset_of!(SendWr, rkey) == 48);
    assert!(offset_of!(SendWr, bind) == 80 && size_of::<BindMw>() == 48);
    assert!(offset_of!(BindMw, rkey) == 8 && offset_of!(BindMw, mr) == 16 && offset_of!(BindMw, addr) == 24);
    assert!(offset_of!(BindMw, length) == 32 && offset_of!(BindMw, access) == 40);
    assert!(size_of::<Wc>() == 48 && offset_of!(Wc, qp_num) == 28 && offset_of!(Wc, wc_flags) == 36);
    assert!(size_of::<QpInitAttr>() == 64 && offset_of!(QpInitAttr, cap) == 32);
    assert!(offset_of!(QpInitAttr, qp_type) == 52 && offset_of!(QpInitAttr, sq_sig_all) == 56);
    assert!(offset_of!(PortAttr, gid_tbl_len) == 12 && offset_of!(PortAttr, link_layer) == 46);
    assert!(
        offset_of!(CmId, qp) == 24 && offset_of!(CmId, src_addr) == 32 && offset_of!(CmId, dst_addr) == 160
    );
    assert!(size_of::<ConnParam>() == 24 && offset_of!(ConnParam, qp_num) == 16);
    assert!(
        offset_of!(CmEvent, event) == 16
            && offset_of!(CmEvent, status) == 20
            && offset_of!(CmEvent, conn) == 24
    );
};
