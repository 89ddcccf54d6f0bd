//! A stand-in for HNS, the networking service of Windows, which Wine lacks. Built for Windows, it is `computenetwork.dll` and `vmcompute.dll`, and
//! the real flanneld.exe, kube-proxy.exe and CNI plugins call it as they call Windows. It carries no packets: its objects are files that tests read.
//!
//! Its assumptions about HNS, with their sources. Real Windows may prove any of them wrong:
//!
//! 1. GUIDs name the objects; callers leave them zero when they create an object. Lists are JSON lists of GUIDs, the properties of an object are
//!    its settings at creation and its `ID` (hnslib 0.1.2, `hcn/hcnnetwork.go`, `hcnendpoint.go`, `hcnloadbalancer.go`, `hcnnamespace.go`).
//! 2. The filter of a query is JSON in a string: `ID`, `Name`, or `VirtualNetwork` for the endpoints of a network (`hcn/hcnendpoint.go`).
//! 3. Missing objects are reported by `HCN_E_NETWORK_NOT_FOUND` and similar codes (golang.org/x/sys 0.29, `windows/zerrors_windows.go`).
//! 4. A change of a network's policies adds the policies that it names, or removes equal ones (`hcn/hcnnetwork.go`, flannel 0.28
//!    `pkg/backend/vxlan/vxlan_network_windows.go`). A change of a load balancer replaces it.
//! 5. HNS adds the node's address and the MAC address of its router to the policies of an overlay network: flanneld and win-overlay wait for both
//!    (flannel `pkg/backend/vxlan/vxlan_windows.go`, plugins 1.9 `pkg/hns`).
//! 6. HNS generates the MAC address of an endpoint that has none.
//! 7. The older API, `HNSCall`, shows the same networks and endpoints with other field names (hnslib `internal/hns/hnsnetwork.go`,
//!    `hnsendpoint.go`); kube-proxy and host-gw use it. Its version is the version of Windows Server 2022.
//! 8. The node itself has an endpoint that is attached to it, once: HNS refuses a second attachment with an error text that flanneld knows (flannel
//!    `pkg/backend/hostgw/hostgw_windows.go`). The adapter with its address is not created here: Wine shows the adapters of the machine.
//!
//! All data is below one directory, `C:\hns`: `node.json` has the node's address (`{"address": "10.0.0.5"}`), `calls.log` a line for each call,
//! and `fault`, where it exists, the fault to simulate: `down`, all calls fail as if the service were stopped; `down 3`, the next three do;
//! `exists`, every creation of a network finds that it exists already. The stand-in for PowerShell keeps its data there too.

mod model;
mod service;

#[cfg(windows)]
#[allow(unsafe_code, non_snake_case, reason = "C calls these functions, by the names that Windows gives them")]
mod exports;

pub use model::{Failure, Kind};
pub use service::Service;
