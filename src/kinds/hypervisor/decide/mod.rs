//! Interprets a listing of a hypervisor ([`listing`]), and finds VMs that no object stands for ([`orphans`]). Pure.

pub mod listing;
pub mod orphans;
