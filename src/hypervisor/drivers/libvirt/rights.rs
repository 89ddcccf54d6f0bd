//! The rights that libvirt's access control checks with polkit for each request. When the daemon refuses a request, its message names
//! neither. Source: <https://libvirt.org/aclapi.html>; a story lets a real polkit refuse the rights that every VM needs.

/// The requests that need a right of their own, with the actions of polkit below `org.libvirt.api`.
const RIGHTS: [(&str, &[&str]); 36] = [
    ("ConnectDomainEventCallbackRegisterAny", &["connect.search-domains"]),
    ("ConnectGetAllDomainStats", &["connect.search-domains"]),
    ("ConnectGetDomainCapabilities", &["connect.write"]),
    ("ConnectGetLibVersion", &["connect.getattr"]),
    ("ConnectListAllInterfaces", &["connect.search-interfaces"]),
    ("ConnectListAllNetworks", &["connect.search-networks"]),
    ("ConnectOpen", &["connect.getattr"]),
    ("DomainCreateWithFlags", &["domain.start"]),
    ("DomainDefineXmlFlags", &["domain.write", "domain.save"]),
    ("DomainDestroyFlags", &["domain.stop"]),
    ("DomainGetXmlDesc", &["domain.read"]),
    ("DomainInterfaceAddresses", &["domain.read"]),
    ("DomainIsActive", &["domain.read"]),
    ("DomainLookupByName", &["domain.getattr"]),
    ("DomainShutdownFlags", &["domain.init-control"]),
    ("DomainUndefineFlags", &["domain.delete"]),
    ("DomainUpdateDeviceFlags", &["domain.write", "domain.save"]),
    ("NodeGetInfo", &["connect.read"]),
    ("NodeGetMemoryStats", &["connect.read"]),
    ("QemuDomainAgentCommand", &["domain.write"]),
    ("StoragePoolGetInfo", &["storage-pool.read"]),
    ("StoragePoolGetXmlDesc", &["storage-pool.read"]),
    ("StoragePoolIsActive", &["storage-pool.getattr"]),
    ("StoragePoolListAllVolumes", &["storage-pool.search-storage-vols"]),
    ("StoragePoolLookupByName", &["storage-pool.getattr"]),
    ("StoragePoolRefresh", &["storage-pool.refresh"]),
    ("StorageVolCreateXml", &["storage-vol.create"]),
    ("StorageVolCreateXmlFrom", &["storage-vol.create"]),
    ("StorageVolDelete", &["storage-vol.delete"]),
    ("StorageVolDownload", &["storage-vol.data-read"]),
    ("StorageVolGetInfo", &["storage-vol.read"]),
    ("StorageVolGetXmlDesc", &["storage-vol.read"]),
    ("StorageVolLookupByName", &["storage-vol.getattr"]),
    ("StorageVolLookupByPath", &["storage-vol.getattr"]),
    ("StorageVolResize", &["storage-vol.resize"]),
    ("StorageVolUpload", &["storage-vol.data-write"]),
];

/// Describes the rights that a request needs, for messages: the actions of polkit, or the request if none is known.
pub fn of(request: &str) -> String {
    let known = RIGHTS.iter().find(|(name, _)| *name == request);
    known.map_or_else(
        || request.to_owned(),
        |(_, actions)| actions.iter().map(|action| format!("org.libvirt.api.{action}")).collect::<Vec<_>>().join(" and "),
    )
}
