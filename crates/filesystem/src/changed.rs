//! Changes of trees, and what an error in the middle of one means.

use larder_transaction::Handle;

/// The result of the engine's calls: an error in the middle of a change is one of these.
pub(crate) type Changed<T> = larder_transaction::Result<T>;

/// Runs changes that an error leaves half done.
pub(crate) fn apply<T>(handle: &Handle<'_>, change: impl FnOnce() -> Changed<T>) -> Changed<T> {
    change().inspect_err(|error| handle.abort(error.clone()))
}
