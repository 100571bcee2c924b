//! What both ways to keep processors awake have in common.

/// A way to keep processors awake.
pub(super) trait KeepAwake {
    /// Keeps them awake from now on.
    fn keep(&mut self);

    /// Lets them sleep.
    fn rest(&mut self);
}
