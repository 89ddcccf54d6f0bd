//! The functions of `computenetwork.dll`, and `HNSCall` of `vmcompute.dll`, as `computenetwork.h` of the Windows SDK declares them. Texts are UTF-16
//! with a zero at the end; the caller frees the returned texts (`CoTaskMemFree`).

use std::ffi::c_void;
use std::sync::LazyLock;

use crate::model::{Failure, Kind};
use crate::service::Service;

const OK: i32 = 0;

static SERVICE: LazyLock<Service> = LazyLock::new(|| Service::new(r"C:\hns"));

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Guid {
    a: u32,
    b: u16,
    c: u16,
    d: [u8; 8],
}

type Text = *const u16;
type Answer = *mut *mut u16;
/// An open object.
type Handle = *mut Object;

pub struct Object {
    kind: Kind,
    id: String,
}

#[link(name = "ole32")]
unsafe extern "system" {
    fn CoTaskMemAlloc(bytes: usize) -> *mut c_void;
    fn CoCreateGuid(guid: *mut Guid) -> i32;
}

/// Formats a GUID in upper case, as HNS shows it.
fn name(guid: Guid) -> String {
    let [a, b, c, d, e, f, g, h] = guid.d;
    format!("{:08X}-{:04X}-{:04X}-{a:02X}{b:02X}-{c:02X}{d:02X}{e:02X}{f:02X}{g:02X}{h:02X}", guid.a, guid.b, guid.c)
}

fn new_id() -> String {
    let mut guid = Guid::default();
    // SAFETY: the GUID is valid for writes.
    unsafe { CoCreateGuid(&raw mut guid) };
    name(guid)
}

/// # Safety
/// The pointer is null, or points to a GUID.
unsafe fn id(guid: *const Guid) -> String {
    // SAFETY: the caller upholds this contract.
    match unsafe { guid.as_ref() } {
        Some(guid) if name(*guid) != name(Guid::default()) => name(*guid),
        _ => new_id(),
    }
}

/// # Safety
/// The text is null, or ends with a zero.
unsafe fn read(text: Text) -> String {
    if text.is_null() {
        return String::new();
    }
    let mut units = Vec::new();
    let mut next = text;
    // SAFETY: the caller upholds this contract; the zero ends the loop.
    while unsafe { *next } != 0 {
        // SAFETY: as above.
        unsafe {
            units.push(*next);
            next = next.add(1);
        }
    }
    String::from_utf16_lossy(&units)
}

/// # Safety
/// The pointer is null, or points to the place for a text.
unsafe fn give(answer: Answer, text: Option<&str>) {
    if answer.is_null() {
        return;
    }
    let Some(text) = text else {
        // SAFETY: the caller upholds this contract.
        unsafe { *answer = std::ptr::null_mut() };
        return;
    };
    let units: Vec<u16> = text.encode_utf16().chain([0]).collect();
    // SAFETY: the memory has room for all units, and belongs to the caller from then on.
    unsafe {
        let memory = CoTaskMemAlloc(units.len() * 2).cast::<u16>();
        if !memory.is_null() {
            std::ptr::copy_nonoverlapping(units.as_ptr(), memory, units.len());
        }
        *answer = memory;
    }
}

/// Ends a call: returns the error number and, for a failure, gives an error text.
///
/// # Safety
/// As [`give`].
unsafe fn end(result: Result<(), Failure>, error: Answer) -> i32 {
    let failure = result.err();
    let text = failure.map(|Failure(code)| format!("{{\"Success\":false,\"Error\":\"error {code:#x}\",\"ErrorCode\":{code}}}"));
    // SAFETY: the caller upholds this contract.
    unsafe { give(error, text.as_deref()) };
    failure.map_or(OK, |Failure(code)| code.cast_signed())
}

/// # Safety
/// As [`give`], for both pointers.
unsafe fn end_with(result: Result<String, Failure>, answer: Answer, error: Answer) -> i32 {
    // SAFETY: the caller upholds this contract.
    unsafe {
        give(answer, result.as_deref().ok());
        end(result.map(drop), error)
    }
}

/// # Safety
/// The pointer points to the place for a handle.
unsafe fn hand(result: Result<(), Failure>, kind: Kind, id: String, handle: *mut Handle, error: Answer) -> i32 {
    let object = result.is_ok().then(|| Box::new(Object { kind, id }));
    // SAFETY: the caller upholds this contract.
    unsafe {
        *handle = object.map_or(std::ptr::null_mut(), Box::into_raw);
        end(result, error)
    }
}

/// # Safety
/// The handle was returned to the caller and is not closed.
unsafe fn object<'a>(handle: Handle) -> &'a Object {
    // SAFETY: the caller upholds this contract.
    unsafe { &*handle }
}

macro_rules! functions {
    ($kind:expr, $enumerate:ident, $open:ident, $modify:ident, $query:ident, $delete:ident, $close:ident) => {
        /// # Safety
        /// As Windows requires of callers.
        #[unsafe(no_mangle)]
        pub unsafe extern "system" fn $enumerate(query: Text, found: Answer, error: Answer) -> i32 {
            // SAFETY: the caller upholds this contract.
            unsafe { end_with(SERVICE.enumerate($kind, &read(query)), found, error) }
        }

        /// # Safety
        /// As Windows requires of callers.
        #[unsafe(no_mangle)]
        pub unsafe extern "system" fn $open(guid: *const Guid, handle: *mut Handle, error: Answer) -> i32 {
            // SAFETY: the caller upholds this contract.
            unsafe {
                let id = id(guid);
                hand(SERVICE.open($kind, &id), $kind, id, handle, error)
            }
        }

        /// # Safety
        /// As Windows requires of callers.
        #[unsafe(no_mangle)]
        pub unsafe extern "system" fn $modify(handle: Handle, settings: Text, error: Answer) -> i32 {
            // SAFETY: the caller upholds this contract.
            unsafe { end(SERVICE.modify(object(handle).kind, &object(handle).id, &read(settings)), error) }
        }

        /// # Safety
        /// As Windows requires of callers.
        #[unsafe(no_mangle)]
        pub unsafe extern "system" fn $query(handle: Handle, _query: Text, properties: Answer, error: Answer) -> i32 {
            // SAFETY: the caller upholds this contract.
            unsafe { end_with(SERVICE.query(object(handle).kind, &object(handle).id), properties, error) }
        }

        /// # Safety
        /// As Windows requires of callers.
        #[unsafe(no_mangle)]
        pub unsafe extern "system" fn $delete(guid: *const Guid, error: Answer) -> i32 {
            // SAFETY: the caller upholds this contract.
            unsafe { end(SERVICE.delete($kind, &id(guid)), error) }
        }

        /// # Safety
        /// As Windows requires of callers.
        #[unsafe(no_mangle)]
        pub unsafe extern "system" fn $close(handle: Handle) -> i32 {
            // SAFETY: the handle was created by `Box::into_raw`.
            drop(unsafe { Box::from_raw(handle) });
            OK
        }
    };
}

macro_rules! creates {
    ($kind:expr, $create:ident) => {
        /// # Safety
        /// As Windows requires of callers.
        #[unsafe(no_mangle)]
        pub unsafe extern "system" fn $create(guid: *const Guid, settings: Text, handle: *mut Handle, error: Answer) -> i32 {
            // SAFETY: the caller upholds this contract.
            unsafe {
                let id = id(guid);
                hand(SERVICE.create($kind, &id, &read(settings), None), $kind, id, handle, error)
            }
        }
    };
}

functions!(Kind::Network, HcnEnumerateNetworks, HcnOpenNetwork, HcnModifyNetwork, HcnQueryNetworkProperties, HcnDeleteNetwork, HcnCloseNetwork);
functions!(
    Kind::Endpoint,
    HcnEnumerateEndpoints,
    HcnOpenEndpoint,
    HcnModifyEndpoint,
    HcnQueryEndpointProperties,
    HcnDeleteEndpoint,
    HcnCloseEndpoint
);
functions!(
    Kind::Namespace,
    HcnEnumerateNamespaces,
    HcnOpenNamespace,
    HcnModifyNamespace,
    HcnQueryNamespaceProperties,
    HcnDeleteNamespace,
    HcnCloseNamespace
);
functions!(
    Kind::LoadBalancer,
    HcnEnumerateLoadBalancers,
    HcnOpenLoadBalancer,
    HcnModifyLoadBalancer,
    HcnQueryLoadBalancerProperties,
    HcnDeleteLoadBalancer,
    HcnCloseLoadBalancer
);
functions!(Kind::Route, HcnEnumerateSdnRoutes, HcnOpenSdnRoute, HcnModifySdnRoute, HcnQuerySdnRouteProperties, HcnDeleteSdnRoute, HcnCloseSdnRoute);
creates!(Kind::Network, HcnCreateNetwork);
creates!(Kind::Namespace, HcnCreateNamespace);
creates!(Kind::LoadBalancer, HcnCreateLoadBalancer);
creates!(Kind::Route, HcnCreateSdnRoute);

/// # Safety
/// As Windows requires of callers.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn HcnCreateEndpoint(network: Handle, guid: *const Guid, settings: Text, handle: *mut Handle, error: Answer) -> i32 {
    // SAFETY: the caller upholds this contract.
    unsafe {
        let id = id(guid);
        let created = SERVICE.create(Kind::Endpoint, &id, &read(settings), Some(&object(network).id));
        hand(created, Kind::Endpoint, id, handle, error)
    }
}

/// The older API.
///
/// # Safety
/// As Windows requires of callers.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn HNSCall(method: Text, path: Text, request: Text, response: Answer) -> i32 {
    // SAFETY: the caller upholds this contract.
    unsafe { end_with(SERVICE.call(&read(method), &read(path), &read(request), new_id), response, std::ptr::null_mut()) }
}
