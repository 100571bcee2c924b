//! Changes of trees, and what an error in the middle of one means.

use larder_transaction::Handle;

/// What the engine's calls return: an error in the middle of a change is one of these.
pub(crate) type Changed<T> = larder_transaction::Result<T>;

/// Runs changes of which an error leaves something half done.
pub(crate) fn apply<T>(handle: &Handle<'_>, change: impl FnOnce() -> Changed<T>) -> Changed<T> {
    change().inspect_err(|error| handle.abort(error.clone()))
}
