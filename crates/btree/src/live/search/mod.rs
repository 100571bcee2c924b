//! Finding the leaf for a change, with as few locks as the change needs.
//!
//! - [`target`]: the key and the purpose. `stop`: why a descent ends early.
//! - [`search`]: the way down. `shortcut`: the way past the upper levels.
//! - `arrival`: at the leaf, the needs of the change in the blocks above.

mod arrival;
#[allow(clippy::module_inception, reason = "the folder is named after its type")]
pub(crate) mod search;
mod shortcut;
mod stop;
pub(crate) mod target;
