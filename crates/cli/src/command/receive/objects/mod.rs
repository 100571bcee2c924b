//! Receiving streams that are objects, in the order in which they build on each other.
//!
//! # Invariants
//! - A subvolume is removed only if a durable note in the target says that larder was receiving it,
//!   it can be changed, and has no received uuid. The note is written while nothing has its name.

mod image;
mod mounted;

use std::ffi::OsStr;
use std::io::Read;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use larder::{ReceiveError, ReceiveEvent, ReceiveOptions, Received, SubvolumeInfo};
use larder_objects::streams::{Catalogue, Download, Name, Origin, Pace, Stream};
use larder_objects::{Address, ObjectsError, Store};

use self::image::Image;
use self::mounted::Mounted;
use super::{Receive, Watch};
use crate::command::Outcome;
use crate::command::objects::store;
use crate::reason::in_words;
use crate::told::{Detail, Told};

/// The file in the target that has the name of the subvolume that is being received.
const NOTE: &str = ".larder-receiving";

type Observe<'a> = &'a mut dyn FnMut(ReceiveEvent<'_>) -> ControlFlow<()>;

/// The directory that subvolumes are received in.
trait Destination {
    /// How streams name the read-only subvolumes of the file system.
    fn there(&self) -> anyhow::Result<Vec<Origin>>;

    /// What has this name in the directory.
    fn find(&self, name: &Name) -> anyhow::Result<AtName>;

    /// Deletes a subvolume of the directory.
    fn delete(&self, name: &Name) -> anyhow::Result<()>;

    /// The name that was noted last.
    fn noted(&self) -> anyhow::Result<Option<Name>>;

    /// Notes that the subvolume `name` is received from now on, or that none is. Durable on return.
    fn note(&mut self, name: Option<&Name>) -> anyhow::Result<()>;

    fn receive(
        &self,
        input: Box<dyn Read + Send>,
        options: &ReceiveOptions,
        observe: Observe<'_>,
    ) -> Result<Received, ReceiveError>;

    /// The name as users write it.
    fn shown(&self, name: &Name) -> String;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtName {
    Nothing,
    /// A subvolume that can be changed and was not received.
    Unfinished,
    Other,
}

impl AtName {
    fn of(is_read_only: bool, received_uuid: larder::Uuid) -> Self {
        if is_read_only || !received_uuid.is_nil() { Self::Other } else { Self::Unfinished }
    }
}

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
            detail,
            watch: Watch::new(self.quiet)?,
            destination: match self.mounted_directory(target)? {
                Some(directory) => Box::new(Mounted::open(directory)?),
                None => Box::new(Image::open(self.source.write(target)?, target)?),
            },
        };
        receiving.clean_up()?;
        let there = receiving.destination.there()?;
        let chain = catalogue.chain(&*receiving.store, wanted, &there)?;
        if chain.is_empty() && !self.quiet {
            eprintln!("{}: is there already", wanted.name);
        }
        for stream in chain {
            receiving.receive(stream)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

struct Receiving {
    store: Arc<dyn Store>,
    options: ReceiveOptions,
    detail: Option<Detail>,
    watch: Watch,
    destination: Box<dyn Destination>,
}

impl Receiving {
    /// Removes the subvolume that an earlier command has left unfinished.
    fn clean_up(&mut self) -> anyhow::Result<()> {
        let Some(name) = self.destination.noted()? else { return Ok(()) };
        if self.remove_unfinished(&name)? {
            let shown = self.destination.shown(&name);
            self.watch.say(&format!("{shown}: was left unfinished, and was removed"));
        }
        Ok(())
    }

    /// Removes the noted subvolume, unless it is complete. Returns whether it was there.
    fn remove_unfinished(&mut self, name: &Name) -> anyhow::Result<bool> {
        let is_unfinished = self.destination.find(name)? == AtName::Unfinished;
        if is_unfinished {
            self.destination.delete(name)?;
        }
        self.destination.note(None)?;
        Ok(is_unfinished)
    }

    fn receive(&mut self, stream: &Stream) -> anyhow::Result<()> {
        let shown = self.destination.shown(&stream.name);
        if self.destination.find(&stream.name)? != AtName::Nothing {
            bail!(
                "{shown}: exists, and is not the snapshot of the stream {}; rename it, or receive \
                 into another directory",
                stream.id
            );
        }
        let download = Download::begin(Arc::clone(&self.store), stream, Pace::default())?;
        let input: Box<dyn Read + Send> = match self.detail {
            Some(detail) => Box::new(Told::new(download, detail)),
            None => Box::new(download),
        };
        self.destination.note(Some(&stream.name))?;
        self.watch.begin(Some(stream.len_bytes));
        let (watch, mut other) = (&mut self.watch, None);
        let outcome = self.destination.receive(input, &self.options, &mut |event| match event {
            ReceiveEvent::Begins { name, .. } if name != stream.name.as_bytes() => {
                other = Some(super::shown(name));
                ControlFlow::Break(())
            }
            event => watch.event(&event),
        });
        let error = match (outcome, other) {
            (Ok(_), _) => return self.destination.note(None),
            (Err(_), Some(other)) => {
                let id = stream.id;
                format!("{shown}: the stream {id} is not of this snapshot but of {other}")
            }
            (Err(error), None) => in_words(&error.to_string()),
        };
        let removed = self.remove_unfinished(&stream.name);
        if removed.with_context(|| format!("{error}; {shown} may be unfinished"))? {
            bail!(
                "{error}; {shown} was unfinished, and was removed: run the command again to go on"
            )
        }
        bail!(error)
    }
}

/// How streams name the subvolume: as what it was received from, and as itself.
fn origins(info: &SubvolumeInfo) -> impl Iterator<Item = Origin> + use<> {
    let origin = |uuid: larder::Uuid, ctransid| Origin { uuid: *uuid.as_bytes(), ctransid };
    let received =
        (!info.received_uuid.is_nil()).then(|| origin(info.received_uuid, info.send_generation));
    let own = origin(info.uuid, info.change_generation);
    // As a later send of this one names it.
    let sent = received.map(|received| Origin { ctransid: own.ctransid, ..received });
    let is_source = info.is_read_only && !info.is_being_deleted;
    [Some(own), received, sent].into_iter().flatten().filter(move |_| is_source)
}
