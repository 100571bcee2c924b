//! Streams as objects.

use anyhow::{Context, anyhow, bail};
use larder::{SendError, StreamOrigin, SubvolumeInfo};
use larder_objects::Address;
use larder_objects::streams::{
    Begun, Catalogue, Description, Name, Origin, Pace, StreamId, Upload,
};

use super::passing::Passing;
use super::sending::Sending;
use super::snapshot::Snapshot;
use crate::objects::store;
use crate::units::Units;
use larder_platform::errno::in_words;

const GO_ON: &str = "run the same command again: what is there is not sent again";

/// Sends each snapshot as a stream of objects.
pub(super) fn send<S: Snapshot>(
    sending: &Sending<'_, S>,
    address: &Address,
    is_incremental: bool,
) -> anyhow::Result<()> {
    let store = store(address)?;
    for (number, snapshot) in sending.snapshots.iter().enumerate() {
        let name = sending.begin(number);
        let say = |text: &str| {
            if !sending.is_quiet {
                eprintln!("{name}: {text}");
            }
        };
        let catalogue = Catalogue::find(&*store)?.unwrap_or_default();
        let parent = if is_incremental {
            match relative_in(&catalogue, snapshot)? {
                Relative::Itself(id) => {
                    say(&format!("is there already, as the stream {id}"));
                    continue;
                }
                Relative::Closest(relative) => {
                    let parent = String::from_utf8_lossy(&relative.name()?).into_owned();
                    say(&format!("sending what differs from {}", parent.escape_debug()));
                    Some(relative)
                }
                Relative::None => {
                    say("no relative of it is both here and there: sending all of it");
                    None
                }
            }
        } else {
            sending.parent_of(snapshot)?
        };
        let options = sending.options(parent);
        let sources = options.clone_sources.iter().map(|source| Ok(origin(source.origin()?)));
        let parent = options.parent.as_ref().map(S::origin).transpose()?.map(origin);
        let description = Description {
            snapshot: origin(snapshot.origin()?),
            parent,
            clone_sources: sources.collect::<anyhow::Result<_>>()?,
            version: options.version.number(),
            is_compressed: options.compressed_data,
        };
        for need in description.needs().filter(|need| catalogue.maker(&need.uuid).is_none()) {
            let uuid = larder::Uuid::from_bytes(need.uuid);
            let store = store.name();
            eprintln!(
                "WARNING: {name}: there is no stream of the snapshot {uuid} at {store}, which this \
                 one builds on"
            );
        }
        let snapshot_name = Name::new(&snapshot.name()?)
            .with_context(|| format!("{name}: has no name, so nobody could receive it"))?;
        let mut upload =
            match Upload::begin(store.clone(), &snapshot_name, &description, Pace::default())? {
                Begun::There(stream) => {
                    say(&format!("is there already, as the stream {}", stream.id));
                    continue;
                }
                Begun::Upload(upload) => upload,
            };
        let mut passing = Passing::new(&mut *upload, options.progress.clone());
        let sent = snapshot.send(&options, &mut passing);
        let passed_bytes = passing.passed_bytes;
        drop(passing);
        match sent {
            Err(SendError::Output(error)) => bail!("{name}: {}; {GO_ON}", in_words(&error)),
            sent => sent.with_context(|| name.to_string())?,
        }
        let uploaded = upload.finish().map_err(|error| anyhow!("{name}: {error}; {GO_ON}"))?;
        if uploaded.found_bytes > 0 {
            let found = Units::default().show(uploaded.found_bytes);
            say(&format!("{found} were there from an earlier send"));
        }
        sending.tell_length(number, passed_bytes - uploaded.found_bytes);
    }
    Ok(())
}

/// What a catalogue has of a snapshot and its relatives.
enum Relative<S> {
    /// The stream with this id is of the snapshot itself.
    Itself(StreamId),
    /// The relative that differs least from it.
    Closest(S),
    None,
}

fn relative_in<S: Snapshot>(catalogue: &Catalogue, snapshot: &S) -> anyhow::Result<Relative<S>> {
    let own = origin(snapshot.origin()?);
    let is_of = |origin: &Origin| {
        catalogue.streams.iter().find(|stream| stream.description.snapshot == *origin)
    };
    if let Some(stream) = is_of(&own) {
        return Ok(Relative::Itself(stream.id));
    }
    let mut is_wanted = |info: &SubvolumeInfo| {
        let SubvolumeInfo { uuid, received_uuid, change_generation, .. } = *info;
        is_of(&origin(StreamOrigin::sent(uuid, received_uuid, change_generation))).is_some()
    };
    let others = snapshot.others(&mut is_wanted)?;
    let closest = snapshot.closest_relative(&others)?;
    Ok(closest.map_or(Relative::None, |relative| Relative::Closest(relative.clone())))
}

fn origin(origin: StreamOrigin) -> Origin {
    Origin { uuid: *origin.uuid.as_bytes(), ctransid: origin.ctransid }
}
