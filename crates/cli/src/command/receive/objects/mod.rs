//! Receiving streams that are objects, in the order in which they build on each other.
//!
//! # Invariants
//! - A subvolume is removed only if a durable note in the target says that larder was receiving it,
//!   it can be changed, and has no received uuid. The note is written while nothing has its name.
//! - A checkpoint has the random id of its stream in its name, so that no other snapshot is taken for
//!   one. It is removed when the subvolume is complete, when there is a later checkpoint, or when the
//!   next command in the target receives another stream.
//! - The note stays as long as there are checkpoints of its stream.

mod destination;
mod image;
mod mounted;
mod note;
mod receiving;

use std::ffi::OsStr;
use std::process::ExitCode;

use larder_objects::streams::Catalogue;
use larder_objects::{Address, ObjectsError};
use larder_stream::Detail;

use self::image::Image;
use self::mounted::Mounted;
use self::receiving::Receiving;
use super::{Receive, Watch};
use crate::objects::store;
use crate::outcome::Outcome;

impl Receive {
    pub(super) fn receive_objects(
        &self,
        address: &Address,
        target: &OsStr,
        detail: Option<Detail>,
    ) -> Outcome {
        let store = store(address)?;
        let catalogue = Catalogue::load(&*store)?;
        let wanted = match &self.stream {
            Some(text) => catalogue.stream(&*store, text)?,
            None => catalogue
                .streams
                .last()
                .ok_or_else(|| ObjectsError::NoStreams { store: store.name().to_owned() })?,
        };
        let mut receiving = Receiving {
            store,
            options: self.options(),
            every_bytes: self.checkpoint_every,
            detail,
            watch: Watch::new(self.quiet)?,
            destination: match self.mounted_directory(target)? {
                Some(directory) => Box::new(Mounted::open(directory)?),
                None => Box::new(Image::open(self.source.write(target)?, target)?),
            },
        };
        let left = receiving.clean_up()?;
        let there = receiving.destination.there()?;
        let chain = catalogue.chain(&*receiving.store, wanted, &there)?;
        if chain.is_empty() && !self.quiet {
            eprintln!("{}: is there already", wanted.name);
        }
        if let Some(left) = left
            && chain.first().is_none_or(|stream| stream.id != left.stream)
        {
            receiving.discard(&left)?;
        }
        for stream in chain {
            receiving.receive(stream)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
