//! Devices around devices, to watch or to disturb.

pub(crate) mod counting;
pub(crate) mod fault;
pub(crate) mod prefetching;
pub(crate) mod recording;
pub(crate) mod spinning;
