//! The two libraries, loaded when they are first needed and never unloaded: their drivers keep
//! threads and handlers.

use crate::Error;
use crate::abi::{
    CmEvent, CmId, CompChannel, ConnParam, Context, Cq, Device, DeviceAttr, EventChannel, Mr, Opaque, Pd,
    PortAttr, QpInitAttr,
};
use libc::{c_char, c_int, c_uint, c_void, sockaddr};
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// Declares the table of functions, and how it is filled by name.
macro_rules! functions {
    ($($library:literal: $($name:ident($($argument:ty),*) $(-> $result:ty)?;)*)*) => {
        /// The functions that we call, by their own names.
        pub(crate) struct Library {
            $($(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Library {
            fn open() -> Result<Self, Error> {
                $(let $crate::library::Opened { find } = &$crate::library::open($library)?;
                $(
                    // SAFETY: the symbol is this function in every version of the library, as its
                    // manual declares it.
                    let $name = unsafe {
                        std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                            find(stringify!($name))?
                        )
                    };
                )*)*
                Ok(Self { $($($name,)*)* })
            }
        }
    };
}

functions! {
    "libibverbs.so.1":
    ibv_get_device_list(*mut c_int) -> *mut *mut Device;
    ibv_free_device_list(*mut *mut Device);
    ibv_open_device(*mut Device) -> *mut Context;
    ibv_close_device(*mut Context) -> c_int;
    ibv_query_device(*mut Context, *mut DeviceAttr) -> c_int;
    ibv_query_port(*mut Context, u8, *mut PortAttr) -> c_int;
    ibv_query_gid(*mut Context, u8, c_int, *mut [u8; 16]) -> c_int;
    ibv_alloc_pd(*mut Context) -> *mut Pd;
    ibv_dealloc_pd(*mut Pd) -> c_int;
    ibv_reg_mr(*mut Pd, *mut c_void, usize, c_int) -> *mut Mr;
    ibv_dereg_mr(*mut Mr) -> c_int;
    ibv_create_comp_channel(*mut Context) -> *mut CompChannel;
    ibv_destroy_comp_channel(*mut CompChannel) -> c_int;
    ibv_create_cq(*mut Context, c_int, *mut c_void, *mut CompChannel, c_int) -> *mut Cq;
    ibv_destroy_cq(*mut Cq) -> c_int;
    ibv_get_cq_event(*mut CompChannel, *mut *mut Cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events(*mut Cq, c_uint);
    ibv_wc_status_str(c_uint) -> *const c_char;
    "librdmacm.so.1":
    rdma_create_event_channel() -> *mut EventChannel;
    rdma_destroy_event_channel(*mut EventChannel);
    rdma_create_id(*mut EventChannel, *mut *mut CmId, *mut c_void, c_uint) -> c_int;
    rdma_destroy_id(*mut CmId) -> c_int;
    rdma_bind_addr(*mut CmId, *mut sockaddr) -> c_int;
    rdma_resolve_addr(*mut CmId, *mut sockaddr, *mut sockaddr, c_int) -> c_int;
    rdma_resolve_route(*mut CmId, c_int) -> c_int;
    rdma_listen(*mut CmId, c_int) -> c_int;
    rdma_connect(*mut CmId, *mut ConnParam) -> c_int;
    rdma_accept(*mut CmId, *mut ConnParam) -> c_int;
    rdma_reject(*mut CmId, *const c_void, u8) -> c_int;
    rdma_migrate_id(*mut CmId, *mut EventChannel) -> c_int;
    rdma_disconnect(*mut CmId) -> c_int;
    rdma_create_qp(*mut CmId, *mut Pd, *mut QpInitAttr) -> c_int;
    rdma_destroy_qp(*mut CmId);
    rdma_get_cm_event(*mut EventChannel, *mut *mut CmEvent) -> c_int;
    rdma_ack_cm_event(*mut CmEvent) -> c_int;
}

/// A library that has been opened.
struct Opened<F: Fn(&'static str) -> Result<Opaque, Error>> {
    find: F,
}

fn open(library: &'static str) -> Result<Opened<impl Fn(&'static str) -> Result<Opaque, Error>>, Error> {
    let missing = move |said: String| Error::Missing { library, said };
    let name = CString::new(library).map_err(|error| missing(error.to_string()))?;
    // SAFETY: the name ends with a zero. Constructors of these libraries touch nothing of ours.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(missing(last_words()));
    }
    let find = move |symbol: &'static str| {
        let name = CString::new(symbol).map_err(|error| missing(error.to_string()))?;
        // SAFETY: the handle is open and stays so, the name ends with a zero.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if found.is_null() { Err(missing(format!("it has no {symbol}"))) } else { Ok(found) }
    };
    Ok(Opened { find })
}

/// What the loader has to say about its last failure.
fn last_words() -> String {
    // SAFETY: no arguments; the text is the thread's own until its next call of this kind.
    let said = unsafe { libc::dlerror() };
    if said.is_null() {
        return "it cannot be loaded".to_owned();
    }
    // SAFETY: it is not null and ends with a zero.
    unsafe { CStr::from_ptr(said) }.to_string_lossy().into_owned()
}

/// The libraries; loaded by the first that asks. One that failed may be asked for again after an
/// installation.
pub(crate) fn library() -> Result<&'static Library, Error> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    if let Some(library) = LIBRARY.get() {
        return Ok(library);
    }
    let opened = Library::open()?;
    Ok(LIBRARY.get_or_init(|| opened))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_says_how_to_get_rdma() {
        let said = match open("libno-such-thing.so.1") {
            Ok(_) => panic!("there is none"),
            Err(error) => error.to_string(),
        };
        assert!(
            said.contains("libno-such-thing.so.1") && said.contains("apt-get install libibverbs1"),
            "{said}"
        );
    }

    #[test]
    fn a_function_that_is_not_there_is_named() {
        let opened = match open("libc.so.6") {
            Ok(opened) => opened,
            Err(error) => panic!("{error}"),
        };
        let said = (opened.find)("no_such_function").expect_err("there is none").to_string();
        assert!(said.contains("no_such_function"), "{said}");
        assert!((opened.find)("malloc").is_ok());
    }
}
