//! What a listing of a hypervisor means ([`listing`]), and which of its VMs no object stands for ([`orphans`]). Pure.

pub mod listing;
pub mod orphans;
