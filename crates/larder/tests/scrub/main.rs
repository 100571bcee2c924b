//! Scrubs: every copy is verified, and bad ones are repaired from good ones.

mod beside_kernel;
mod faults;
mod in_use;
mod made;
