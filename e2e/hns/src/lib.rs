//! A stand-in for HNS, the networking service of Windows, which Wine lacks. Built for Windows, it is `computenetwork.dll` and `vmcompute.dll`, and
//! the real flanneld.exe, kube-proxy.exe and CNI plugins call it as they call Windows. It carries no packets: its objects are files that tests read.
//!
//! What it assumes of HNS, and where that was read. Line by line, real Windows may prove it wrong:
//!
//! 1. Objects are named by GUIDs, which callers leave zero when they create one. Lists are JSON lists of GUIDs, the properties of an object are
//!    what it was created with and its `ID` (hnslib 0.1.2, `hcn/hcnnetwork.go`, `hcnendpoint.go`, `hcnloadbalancer.go`, `hcnnamespace.go`).
//! 2. The filter of a query is JSON in a string: `ID`, `Name`, or `VirtualNetwork` for the endpoints of a network (`hcn/hcnendpoint.go`).
//! 3. What is missing is said by `HCN_E_NETWORK_NOT_FOUND` and its relatives (golang.org/x/sys 0.29, `windows/zerrors_windows.go`).
//! 4. A change of a network's policies adds those that it names, or takes away those that are equal (`hcn/hcnnetwork.go`, flannel 0.28
//!    `pkg/backend/vxlan/vxlan_network_windows.go`). A change of a load balancer replaces it.
//! 5. HNS adds the node's address and the MAC address of its router to the policies of an overlay network: flanneld and win-overlay wait for both
//!    (flannel `pkg/backend/vxlan/vxlan_windows.go`, plugins 1.9 `pkg/hns`).
//! 6. HNS makes the MAC address of an endpoint that has none.
//! 7. The older API, `HNSCall`, shows the same networks and endpoints with other names of fields (hnslib `internal/hns/hnsnetwork.go`,
//!    `hnsendpoint.go`); kube-proxy and host-gw use it. Its version is that of Windows Server 2022.
//! 8. The node itself has an endpoint that is attached to it, once: the second time that is refused in words that flanneld knows (flannel
//!    `pkg/backend/hostgw/hostgw_windows.go`). The adapter with its address is not made here: Wine shows those of the machine.
//!
//! Everything is below one directory, `C:\hns`: `node.json` has the node's address (`{"address": "10.0.0.5"}`), `calls.log` a line for each call,
//! and `fault`, where it exists, what goes wrong: `down`, all calls fail as if the service were stopped; `down 3`, the next three do;
//! `exists`, a network is there already whenever one is created. What the stand-in for PowerShell beside it keeps is there too.

mod model;
mod service;

#[cfg(windows)]
#[allow(unsafe_code, non_snake_case, reason = "C calls these functions, by the names that Windows gives them")]
mod exports;

pub use model::{Failure, Kind};
pub use service::Service;
