//! From the superblocks of a device to the last of its chunks.

use std::ops::ControlFlow;

use larder_transaction::Error;

use crate::device::{Part, Scrub, Stopped};
use crate::state::State;
use crate::superblocks::scrub_superblocks;
use crate::walk::scrub_part;

impl Scrub<'_> {
    /// Scrubs the device.
    pub fn run(&self) -> Result<(), Stopped> {
        let member = self.target.volume().device(self.device);
        let member = member.filter(|member| !member.is_missing()).ok_or(Stopped::NoDevice)?;
        let before = self.progress.get();
        scrub_superblocks(self, &member);
        let mut at = self.start;
        while let ControlFlow::Continue(()) = self.scrub_next(&mut at)? {}
        let after = self.progress.get();
        if let Some(manager) = self.target.manager().filter(|_| !self.is_read_only) {
            if after.super_errors > before.super_errors {
                // Writes all copies.
                manager.change_superblock(|_| ());
                manager.commit()?;
            } else if after.corrected_errors > before.corrected_errors {
                manager.volume().flush().map_err(Error::from)?;
            }
        }
        Ok(())
    }

    /// Scrubs the next part of a chunk from an address on, which it moves along.
    fn scrub_next(&self, at: &mut u64) -> Result<ControlFlow<()>, Stopped> {
        let state = self.target.state()?;
        let Some(part) = next_part(&state, self.device, *at).filter(|part| part.start() < self.end)
        else {
            return Ok(ControlFlow::Break(()));
        };
        let scrubbed = scrub_part(self, &state, &part, (*at).max(part.start()));
        match scrubbed {
            Ok(reached) => {
                *at = reached;
                Ok(ControlFlow::Continue(()))
            }
            // Whatever was read was of no state.
            Err((reached, Stopped::Failed(_))) if !state.is_kept() => {
                *at = reached;
                Ok(ControlFlow::Continue(()))
            }
            Err((_, stopped)) => Err(stopped),
        }
    }
}

/// The first part of a chunk on a device that ends after an address.
fn next_part(state: &State, device: u64, at: u64) -> Option<Part> {
    let parts = state.geometry.chunks().iter().flat_map(|chunk| {
        let stripes = chunk.stripes().iter().enumerate();
        let own = stripes.filter(move |(_, stripe)| stripe.devid == device);
        own.map(move |(stripe, _)| Part { chunk: chunk.clone(), stripe })
    });
    parts.filter(|part| part.end() > at).min_by_key(Part::start)
}
