//! One writer on a machine.

#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(not(target_os = "linux"))]
pub(crate) use elsewhere::Claim;
#[cfg(target_os = "linux")]
pub(crate) use linux::Claim;
