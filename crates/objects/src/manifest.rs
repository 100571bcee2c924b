//! The manifest: the one object that is replaced.
//!
//! It names a state of the device, the writer, and the states that are kept. It leads to all other
//! objects, and to the first flush after that state. Its length does not depend on the device's:
//! after the checkpoint it lists segments, up to a limit, at which the writer makes the next
//! checkpoint.

use std::fmt;

use crate::codec::{Decoder, Encoder, Malformed};
use crate::flush::Flush;
use crate::id::ObjectId;
use crate::map::{Delta, ObjectRecord, RootRef};
use crate::states::{Policy, State};

/// The manifest's name.
pub(crate) const NAME: &str = "manifest";

const MAGIC: &[u8; 8] = b"LarderOM";
const VERSION: u64 = 3;

/// The process that has opened the device for writing, or was the last to do so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Writer {
    /// Random: no two openings have the same.
    pub(crate) nonce: [u8; 16],
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// Its journal on that machine, if it has one.
    pub(crate) journal: String,
    /// How much of that the state has, if it is known.
    pub(crate) journaled: Option<u64>,
    /// Since when, in seconds since 1970.
    pub(crate) since: u64,
    /// It has flushed everything and gone.
    pub(crate) is_done: bool,
}

impl Writer {
    /// The machine, the journal there and how much of it in one text, as a manifest has them.
    fn place(&self) -> String {
        let Self { host, journal, journaled, .. } = self;
        match journaled {
            _ if journal.is_empty() => host.clone(),
            None => format!("{host}\0{journal}"),
            Some(journaled) => format!("{host}\0{journal}\0{journaled}"),
        }
    }

    /// The same with its parts apart.
    fn placed(self) -> Self {
        let mut parts = self.host.splitn(3, '\0').map(str::to_owned);
        let (host, journal) = (parts.next(), parts.next());
        let journaled = parts.next().and_then(|number| number.parse().ok());
        Self {
            host: host.unwrap_or_default(),
            journal: journal.unwrap_or_default(),
            journaled,
            ..self
        }
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, host, journal, .. } = self;
        write!(f, "process {pid} on {host}")?;
        if journal.is_empty() { Ok(()) } else { write!(f, " with the journal {journal}") }
    }
}

/// Where objects of early epochs lie, if this device began as a clone of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    /// The last epoch whose objects lie there.
    pub(crate) last_epoch: u32,
    /// The way there from here: `../photos`.
    pub(crate) path: String,
}

impl Base {
    /// Some parts `..`, and then names.
    fn is_way(path: &str) -> bool {
        let mut names = path.split('/').skip_while(|part| *part == "..");
        path.split('/').next() == Some("..") && names.all(|part| !["", ".", ".."].contains(&part))
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let base = Self { last_epoch: from.small()?, path: from.text()? };
        if Self::is_way(&base.path) { Ok(base) } else { Err(Malformed("its origin is no place")) }
    }
}

/// A segment, or a flush with content, after the checkpoint, and what it changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TailSegment {
    pub(crate) id: ObjectId,
    /// The object's.
    pub(crate) len_bytes: u64,
    /// The first state that has it.
    pub(crate) born: u64,
    pub(crate) deltas: Vec<Delta>,
}

impl TailSegment {
    /// What is known of it before a checkpoint counts how much of it lives.
    pub(crate) fn record(&self) -> ObjectRecord {
        let Self { id, len_bytes, born, .. } = *self;
        let kind = id.kind();
        ObjectRecord { kind, id, len_bytes, born, live_bytes: 0, died: None, doomed: None }
    }

    pub(crate) fn encode(segments: &[Self], to: &mut Encoder) {
        to.list(segments, |to, segment| {
            to.number(segment.id.raw());
            to.number(segment.len_bytes);
            to.number(segment.born);
            Delta::encode(&segment.deltas, to);
        });
    }

    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Vec<Self>, Malformed> {
        from.list(|from| {
            let id = ObjectId::from_raw(from.number()?);
            let (len_bytes, born) = (from.number()?, from.number()?);
            Ok(Self { id, len_bytes, born, deltas: Delta::decode(from)? })
        })
    }
}

/// A state, and how many of the segments after its checkpoint belong to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) state: State,
    pub(crate) segments: u64,
}

/// The kept states between two earlier checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Era {
    pub(crate) root: Option<RootRef>,
    /// The segments after the checkpoint, as far as kept states need them, and their lengths. What
    /// they changed is said at their ends.
    pub(crate) segments: Vec<(ObjectId, u64)>,
    pub(crate) marks: Vec<Mark>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) uuid: [u8; 16],
    /// Each manifest of a device has the next number.
    pub(crate) number: u64,
    pub(crate) len_bytes: u64,
    /// In the order of their epochs.
    pub(crate) bases: Vec<Base>,
    pub(crate) epoch: u32,
    /// The first flush that is not part of the state.
    pub(crate) next_flush: ObjectId,
    pub(crate) writer: Writer,
    pub(crate) policy: Policy,
    /// How long an object that no kept state needs stays for readers, in seconds.
    pub(crate) delete_after: u64,
    pub(crate) earlier: Vec<Era>,
    pub(crate) root: Option<RootRef>,
    pub(crate) tail: Vec<TailSegment>,
    /// The kept states since the checkpoint. The last one is the device's state.
    pub(crate) marks: Vec<Mark>,
}

impl Manifest {
    /// The device's state.
    pub(crate) fn state(&self) -> State {
        self.marks.last().expect("the last state is always kept").state
    }

    /// Whether objects of an epoch lie where this device was cloned from.
    pub(crate) fn is_elsewhere(&self, epoch: u32) -> bool {
        self.bases.last().is_some_and(|base| epoch <= base.last_epoch)
    }

    /// The kept states, oldest first.
    pub(crate) fn states(&self) -> impl Iterator<Item = State> {
        let earlier = self.earlier.iter().flat_map(|era| &era.marks);
        earlier.chain(&self.marks).map(|mark| mark.state)
    }

    /// Corrects the times of states that a wrong clock has put into the future.
    pub(crate) fn end_future(&mut self, now: u64) {
        let earlier = self.earlier.iter_mut().flat_map(|era| &mut era.marks);
        for mark in earlier.chain(&mut self.marks) {
            mark.state.time = mark.state.time.min(now);
        }
    }

    /// Adds the flush `next_flush`.
    pub(crate) fn append(&mut self, flush: Flush, len_bytes: u64) {
        let Flush { state, segments, deltas, journaled, .. } = flush;
        self.writer.journaled = journaled;
        let own = TailSegment { id: self.next_flush, len_bytes, born: state.number, deltas };
        self.tail.extend(segments);
        self.tail.push(own);
        self.end_future(state.time);
        self.marks.push(Mark { state, segments: self.tail.len() as u64 });
        self.next_flush = self.next_flush.next();
    }

    /// Adds a segment with content that the checkpoint has, too, in other objects. It comes before
    /// all that has changed since.
    pub(crate) fn adopt(&mut self, id: ObjectId, len_bytes: u64, deltas: Vec<Delta>) {
        let born = self.marks.first().expect("the last state is always kept").state.number;
        self.tail.insert(0, TailSegment { id, len_bytes, born, deltas });
        for mark in &mut self.marks {
            mark.segments += 1;
        }
    }

    /// Forgets states that the policy does not keep, and earlier segments that no state needs.
    pub(crate) fn thin_out(&mut self, now: u64) {
        let states: Vec<_> = self.states().collect();
        let mut kept = self.policy.kept(&states, now).into_iter();
        let mut is_kept = |_: &Mark| kept.next().expect("one for each state");
        for era in &mut self.earlier {
            era.marks.retain(&mut is_kept);
            let needed = era.marks.last().map_or(0, |mark| mark.segments);
            era.segments.truncate(needed as usize);
        }
        self.marks.retain(&mut is_kept);
        self.earlier.retain(|era| !era.marks.is_empty());
    }

    /// Begins the time after a checkpoint, which has the state `state`. What was after the one
    /// before belongs to earlier states. The caller sets the root.
    pub(crate) fn begin_era(&mut self, state: State) {
        let segments = self.tail.drain(..).map(|segment| (segment.id, segment.len_bytes)).collect();
        let marks = std::mem::replace(&mut self.marks, vec![Mark { state, segments: 0 }]);
        self.earlier.push(Era { root: self.root.take(), segments, marks });
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Encoder::default();
        to.raw(MAGIC);
        to.number(VERSION);
        to.raw(&self.uuid);
        to.number(self.number);
        to.number(self.len_bytes);
        to.list(&self.bases, |to, base| {
            to.number(u64::from(base.last_epoch));
            to.text(&base.path);
        });
        to.number(u64::from(self.epoch));
        to.number(self.next_flush.raw());
        to.raw(&self.writer.nonce);
        to.text(&self.writer.place());
        to.number(u64::from(self.writer.pid));
        to.number(self.writer.since);
        to.number(u64::from(self.writer.is_done));
        self.policy.encode(&mut to);
        to.number(self.delete_after);
        to.list(&self.earlier, |to, era| {
            encode_root(to, era.root);
            to.list(&era.segments, |to, (id, len_bytes)| {
                to.number(id.raw());
                to.number(*len_bytes);
            });
            encode_marks(to, &era.marks);
        });
        encode_root(&mut to, self.root);
        TailSegment::encode(&self.tail, &mut to);
        encode_marks(&mut to, &self.marks);
        to.sealed()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        if !bytes.starts_with(MAGIC) {
            return Err(Malformed("it is not a manifest of larder"));
        }
        let mut from = Decoder::unsealed(bytes)?;
        from.raw(MAGIC.len())?;
        match from.number()? {
            VERSION => {}
            ..VERSION => {
                return Err(Malformed(
                    "it is of an older format, which this version of larder does not read; export \
                     the file system with the version that made it, and import it with this one",
                ));
            }
            _ => return Err(Malformed("a newer version of larder wrote it")),
        }
        let uuid = from.array()?;
        let number = from.number()?;
        let len_bytes = from.number()?;
        let bases = from.list(Base::decode)?;
        let epoch = from.small()?;
        let next_flush = ObjectId::from_raw(from.number()?);
        let writer = Writer {
            nonce: from.array()?,
            host: from.text()?,
            journal: String::new(),
            journaled: None,
            pid: from.small()?,
            since: from.number()?,
            is_done: from.number()? != 0,
        };
        let writer = writer.placed();
        let policy = Policy::decode(&mut from)?;
        let delete_after = from.number()?;
        let earlier = from.list(|from| {
            let root = decode_root(from)?;
            let segments =
                from.list(|from| Ok((ObjectId::from_raw(from.number()?), from.number()?)))?;
            let marks = decode_marks(from, segments.len())?;
            Ok(Era { root, segments, marks })
        })?;
        let root = decode_root(&mut from)?;
        let tail = TailSegment::decode(&mut from)?;
        let marks = decode_marks(&mut from, tail.len())?;
        from.end()?;
        if marks.is_empty() || len_bytes > i64::MAX as u64 {
            return Err(Malformed("it has no state"));
        }
        Ok(Self {
            uuid,
            number,
            len_bytes,
            bases,
            epoch,
            next_flush,
            writer,
            policy,
            delete_after,
            earlier,
            root,
            tail,
            marks,
        })
    }
}

fn encode_root(to: &mut Encoder, root: Option<RootRef>) {
    to.number(u64::from(root.is_some()));
    if let Some(root) = root {
        root.encode(to);
    }
}

fn decode_root(from: &mut Decoder<'_>) -> Result<Option<RootRef>, Malformed> {
    Ok(match from.number()? {
        0 => None,
        _ => Some(RootRef::decode(from)?),
    })
}

fn encode_marks(to: &mut Encoder, marks: &[Mark]) {
    to.list(marks, |to, mark| {
        to.number(mark.state.number);
        to.number(mark.state.time);
        to.number(mark.segments);
    });
}

fn decode_marks(from: &mut Decoder<'_>, segments: usize) -> Result<Vec<Mark>, Malformed> {
    from.list(|from| {
        let state = State { number: from.number()?, time: from.number()? };
        let mark = Mark { state, segments: from.number()? };
        if mark.segments > segments as u64 {
            return Err(Malformed("a state in it has segments that it does not name"));
        }
        Ok(mark)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let mark = |number, time, segments| Mark { state: State { number, time }, segments };
        let id = |number| ObjectId::new(2, number);
        Manifest {
            uuid: [7; 16],
            number: 6,
            len_bytes: 1 << 40,
            bases: vec![Base { last_epoch: 1, path: "../photos".to_owned() }],
            epoch: 2,
            next_flush: ObjectId::of_flush(2, 9),
            writer: Writer {
                nonce: [9; 16],
                host: "pantry".to_owned(),
                pid: 77,
                journal: "/ssd/journal".to_owned(),
                journaled: Some(u64::MAX),
                since: 1_000_000,
                is_done: false,
            },
            policy: Policy::default(),
            delete_after: 3600,
            earlier: vec![Era {
                root: None,
                segments: vec![(id(0), 5000), (id(1), 6000)],
                marks: vec![mark(3, 1_000_000, 1)],
            }],
            root: Some(RootRef { object: id(2), offset: 100, len: 50 }),
            tail: vec![TailSegment {
                id: id(3),
                len_bytes: 9000,
                born: 5,
                deltas: vec![Delta { start: 4096, len: 4096, offset: Some(0) }],
            }],
            marks: vec![mark(4, 1_000_100, 0), mark(5, 1_000_101, 1)],
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let whole = manifest();
        let with = |writer: Writer| Manifest { writer, ..whole.clone() };
        let unknown = with(Writer { journaled: None, ..whole.writer.clone() });
        let without = with(Writer { journal: String::new(), ..unknown.writer.clone() });
        for manifest in [whole.clone(), unknown, without] {
            assert_eq!(Manifest::decode(&manifest.encode()).unwrap(), manifest);
        }
    }

    #[test]
    fn an_origin_is_a_place_beside_this_one() {
        for way in ["../photos", "../../a b/c", ".."] {
            assert!(Base::is_way(way), "{way}");
        }
        for way in ["", "photos", "/etc", "../", "..//a", "../a/../b", "../a/.", "..a"] {
            assert!(!Base::is_way(way), "{way}");
        }
    }

    #[test]
    fn no_state_stays_in_the_future() {
        let mut manifest = manifest();
        manifest.end_future(1_000_050);
        let times: Vec<_> = manifest.states().map(|state| state.time).collect();
        assert_eq!(times, [1_000_000, 1_000_050, 1_000_050]);
    }

    #[test]
    fn states_that_are_forgotten_take_their_segments_along() {
        let mut manifest = manifest();
        manifest.thin_out(1_000_101);
        assert_eq!(manifest.earlier[0].segments.len(), 1);
        assert_eq!(manifest.states().count(), 3);
        manifest.thin_out(1_000_101 + 90 * 24 * 3600);
        assert!(manifest.earlier.is_empty());
        assert_eq!(manifest.states().count(), 1);
        assert_eq!(manifest.state().number, 5);
    }
}
