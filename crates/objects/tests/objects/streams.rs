//! Streams in a store: senders are cut off and resumed, several of them and prunes meet, and the
//! catalogue never has a stream that cannot be read.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::sync::Arc;

use crate::support::{MemoryStore, Network, Persistent, explore, keys, opened};
use bytes::Bytes;
use larder_objects::streams::{
    Begun, Catalogue, Description, Download, Name, Origin, Pace, Pruned, Pruning, Stream, Upload,
    Uploaded, prune, verify,
};
use larder_objects::{Counting, DataKey, ObjectsError, Store};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const PACE: Pace = Pace { part_bytes: 100, at_once: 3 };

/// Longer than any test takes: no interrupted send is forgotten.
const NEVER: u64 = 1 << 40;

fn origin(number: u8) -> Origin {
    Origin { uuid: [number; 16], ctransid: number.into() }
}

/// The stream of the snapshot `number`, whole or as the difference from another.
fn description(number: u8, parent: Option<u8>) -> Description {
    Description {
        snapshot: origin(number),
        parent: parent.map(origin),
        clone_sources: Vec::new(),
        version: 1,
        is_compressed: false,
    }
}

fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..len).map(|_| rng.random()).collect()
}

fn name_of(description: &Description) -> Name {
    Name::new(format!("snapshot {}", description.snapshot.ctransid).as_bytes()).unwrap()
}

fn begin(store: &Arc<dyn Store>, description: &Description) -> Result<Upload, ObjectsError> {
    match Upload::begin(Arc::clone(store), &name_of(description), description, PACE)? {
        Begun::Upload(upload) => Ok(*upload),
        Begun::There(stream) => panic!("it is there: {stream:?}"),
    }
}

fn send(
    store: &Arc<dyn Store>,
    description: &Description,
    content: &[u8],
) -> Result<Uploaded, ObjectsError> {
    let mut upload = begin(store, description)?;
    upload.write_all(content).map_err(|error| {
        *error.into_inner().expect("of the store").downcast::<ObjectsError>().expect("of the store")
    })?;
    upload.finish()
}

fn read(store: &Arc<dyn Store>, stream: &Stream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut download = Download::begin(Arc::clone(store), stream, 0, PACE).unwrap();
    download.read_to_end(&mut bytes).unwrap();
    bytes
}

fn memory() -> (Arc<MemoryStore>, Arc<dyn Store>) {
    let store = Arc::new(MemoryStore::default());
    (Arc::clone(&store), store)
}

/// Every object but the catalogue is a part or the index of a stream in it.
fn assert_nothing_is_left(memory: &MemoryStore, store: &dyn Store) {
    let streams = Catalogue::find(store).unwrap().map_or(Vec::new(), |found| found.streams);
    let needed: u64 = streams.iter().map(|stream| stream.parts() + 1).sum();
    let names = memory.names();
    let names: Vec<_> = names.iter().filter(|name| !name.starts_with("probe-")).collect();
    assert_eq!(names.len() as u64, needed + 1, "{names:?}");
}

#[test]
fn what_is_sent_is_read_whatever_its_length() {
    let (memory, store) = memory();
    let mut sent = HashMap::new();
    for (number, len) in [1, 99, 100, 101, 1000, 2345].into_iter().enumerate() {
        let content = content(number as u64, len);
        let uploaded = send(&store, &description(number as u8, None), &content).unwrap();
        assert_eq!((uploaded.stream.len_bytes, uploaded.found_bytes), (len as u64, 0));
        sent.insert(uploaded.stream.id, content);
    }
    let catalogue = Catalogue::load(&*store).unwrap();
    assert_eq!((catalogue.streams.len(), catalogue.unfinished.len()), (sent.len(), 0));
    for stream in &catalogue.streams {
        assert!(read(&store, stream) == sent[&stream.id]);
        // The parts in the order of their names are the stream.
        let folder = format!("streams/{}/", stream.id);
        let mut names = memory.names();
        names.retain(|name| name.starts_with(&folder));
        names.sort();
        let parts = names.iter().map(|name| store.get(name, 0..1000).unwrap());
        assert!(parts.collect::<Vec<_>>().concat() == sent[&stream.id]);
    }
    assert_nothing_is_left(&memory, &*store);
}

#[test]
fn what_is_there_is_not_sent_again() {
    let (_, store) = memory();
    let first = send(&store, &description(1, None), &content(1, 300)).unwrap().stream;
    let other_name = Name::new(b"x").unwrap();
    let again = Upload::begin(Arc::clone(&store), &other_name, &description(1, None), PACE);
    let again = again.unwrap();
    assert!(matches!(again, Begun::There(stream) if stream == first));
    // As the difference from another one it is another stream.
    send(&store, &description(1, Some(2)), &content(2, 300)).unwrap();
    assert_eq!(Catalogue::load(&*store).unwrap().streams.len(), 2);
}

/// A sender that is cut off after any number of requests is resumed: the parts that are there are
/// neither sent nor read again.
#[test]
fn a_send_is_resumed_wherever_it_was_cut() {
    for key in keys() {
        cut_and_resume(key.as_ref());
    }
}

fn cut_and_resume(key: Option<&DataKey>) {
    let content = content(5, 1234);
    for requests in 0.. {
        let memory = Arc::new(MemoryStore::default());
        let store = opened(Arc::clone(&memory), key);
        let network = Arc::new(Network::new(Arc::clone(&memory), requests, 0.0));
        network.cut_after(requests);
        let cut = opened(network, key);
        let first = send(&cut, &description(1, None), &content);
        let parts = store.list("streams/").unwrap();
        let there = parts.len() as u64;
        let found: u64 = parts.iter().map(|part| part.len_bytes).sum();
        let has_catalogue = Catalogue::find(&*store).unwrap();
        if has_catalogue.is_some_and(|catalogue| !catalogue.streams.is_empty()) {
            // The last request that counts was made.
            assert!(first.is_ok() && there == 13, "{first:?} {there}");
            assert!(requests > 15);
            break;
        }
        assert!(first.is_err());
        let counting = Arc::new(Counting::new(memory));
        let counted = opened(Arc::clone(&counting), key);
        let uploaded = send(&counted, &description(1, None), &content).unwrap();
        assert!(read(&store, &uploaded.stream) == content);
        assert_eq!(uploaded.found_bytes, found, "{requests}");
        // The probe, the catalogue, the index, and the parts that were missing.
        let requests = counting.requests();
        assert!(requests.creates <= 2 + 1 + 1 + 13 - there, "{requests:?}");
        // An index that is there is compared.
        assert!(requests.gets <= 5, "no part is read: {requests:?}");
    }
}

#[test]
fn parts_of_another_content_are_replaced() {
    let (memory, store) = memory();
    let (old, new) = (content(1, 1000), content(2, 900));
    let mut upload = begin(&store, &description(1, None)).unwrap();
    upload.write_all(&old[..500]).unwrap();
    drop(upload);
    // The first 200 bytes are the same.
    let new = [&old[..200], &new].concat();
    let uploaded = send(&store, &description(1, None), &new).unwrap();
    assert!(read(&store, &uploaded.stream) == new);
    assert_nothing_is_left(&memory, &*store);
}

#[test]
fn a_part_that_was_cut_short_is_sent_again() {
    for key in keys() {
        cut_short_and_send(key.as_ref());
    }
}

fn cut_short_and_send(key: Option<&DataKey>) {
    let memory = Arc::new(MemoryStore::default());
    let store = opened(Arc::clone(&memory), key);
    let content = content(1, 1000);
    let mut upload = begin(&store, &description(1, None)).unwrap();
    upload.write_all(&content[..900]).unwrap();
    drop(upload);
    let part = memory.names().into_iter().find(|name| name.starts_with("streams/")).unwrap();
    memory.delete(&part).unwrap();
    memory.create(&part, Bytes::from_static(b"short")).unwrap();
    let uploaded = send(&store, &description(1, None), &content).unwrap();
    assert!(read(&store, &uploaded.stream) == content);
}

#[test]
fn damage_is_found_and_never_handed_on() {
    let (memory, store) = memory();
    let content = content(1, 1000);
    let uploaded = send(&store, &description(1, None), &content).unwrap();
    let other = send(&store, &description(2, None), &content).unwrap();
    let catalogue = Catalogue::load(&*store).unwrap();
    let streams: Vec<_> = catalogue.streams.iter().collect();
    let verify_all = || {
        let mut last = 0;
        let found = verify(&store, &streams, PACE, &mut |done, total| {
            assert!(done <= total && total == 2000);
            last = done;
        });
        assert_eq!(last, 2000);
        found.unwrap()
    };
    assert_eq!(verify_all(), []);
    let folder = format!("streams/{}/", uploaded.stream.id);
    let mut parts = memory.names();
    parts.retain(|name| name.starts_with(&folder));
    let sound = store.get(&parts[4], 0..1000).unwrap();
    let mut flipped = sound.to_vec();
    flipped[50] ^= 1;
    let longer = [&sound[..], b"x"].concat();
    for damaged in [Some(flipped), Some(longer), Some(sound[..99].to_vec()), None] {
        store.delete(&parts[4]).unwrap();
        if let Some(damaged) = damaged {
            store.create(&parts[4], damaged.into()).unwrap();
        }
        let findings = verify_all();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].stream, uploaded.stream.id);
        assert!(findings[0].problem.contains(&parts[4]), "{findings:?}");
        let mut seen = Vec::new();
        let mut download = Download::begin(Arc::clone(&store), &uploaded.stream, 0, PACE).unwrap();
        let error = download.read_to_end(&mut seen).unwrap_err();
        assert!(error.to_string().contains(&parts[4]), "{error}");
        assert!(seen == content[..400]);
        assert!(read(&store, &other.stream) == content);
    }
    let index = memory.names().into_iter().find(|name| name.starts_with("indexes/")).unwrap();
    store.delete(&index).unwrap();
    assert!(verify_all().iter().any(|finding| finding.problem.contains(&index)));
}

/// Sends tiny streams: each is a snapshot, the one it is a difference from, and more that it clones
/// from.
fn line(store: &Arc<dyn Store>, streams: &[(u8, Option<u8>, &[u8])]) -> Catalogue {
    for (number, parent, sources) in streams {
        let mut description = description(*number, *parent);
        description.clone_sources = sources.iter().copied().map(origin).collect();
        send(store, &description, &[*number; 10]).unwrap();
    }
    Catalogue::load(&**store).unwrap()
}

fn numbers<'a>(streams: impl IntoIterator<Item = &'a Stream>) -> Vec<u8> {
    streams.into_iter().map(|stream| stream.description.snapshot.uuid[0]).collect()
}

#[test]
fn a_chain_has_what_is_missing_and_no_more() {
    let (_, store) = memory();
    // The order in the catalogue is not that of the chain.
    let catalogue = line(
        &store,
        &[
            (4, Some(3), &[2]),
            (1, None, &[]),
            (3, Some(1), &[]),
            (2, Some(1), &[]),
            (9, Some(8), &[]),
            (6, Some(7), &[]),
            (7, Some(6), &[]),
        ],
    );
    let chain = |name: &str, there: &[Origin]| {
        let wanted = catalogue.stream(&*store, name)?;
        catalogue.chain(&*store, wanted, there).map(numbers)
    };
    let all = chain("snapshot 4", &[]).unwrap();
    assert!(all == [1, 3, 2, 4] || all == [1, 2, 3, 4], "{all:?}");
    assert_eq!(chain("snapshot 4", &[origin(3)]).unwrap(), [1, 2, 4]);
    assert_eq!(chain("snapshot 4", &[origin(3), origin(2)]).unwrap(), [4]);
    assert!(chain("snapshot 4", &[origin(4)]).unwrap().is_empty());
    assert_eq!(chain("snapshot 1", &[]).unwrap(), [1]);
    // What another state of the parent is, a receiver takes for the parent.
    let later = Origin { ctransid: 99, ..origin(8) };
    assert_eq!(chain("snapshot 9", &[later]).unwrap(), [9]);
    let missing = chain("snapshot 9", &[]).unwrap_err().to_string();
    let uuid = uuid::Uuid::from_bytes([8; 16]).to_string();
    assert!(missing.contains("snapshot 9") && missing.contains(&uuid), "{missing}");
    assert!(matches!(chain("snapshot 6", &[]), Err(ObjectsError::NotThere { .. })));
    assert!(matches!(chain("snapshot 5", &[]), Err(ObjectsError::NoSuchStream { .. })));
    assert_eq!(numbers(catalogue.streams.iter().filter(|it| catalogue.gaps(it).count() > 0)), [9]);
}

#[test]
fn of_two_streams_of_a_snapshot_the_one_that_can_be_received_is_used() {
    let (_, store) = memory();
    let catalogue =
        line(&store, &[(2, Some(1), &[]), (2, None, &[]), (3, Some(2), &[]), (2, Some(8), &[])]);
    let wanted = catalogue.stream(&*store, "snapshot 3").unwrap();
    let chain = catalogue.chain(&*store, wanted, &[]).unwrap();
    assert_eq!(numbers(chain.iter().copied()), [2, 3]);
    assert_eq!(chain[0].description.parent, None);
    let ambiguous = catalogue.stream(&*store, "snapshot 2").unwrap_err().to_string();
    assert!(ambiguous.contains(&chain[0].id.to_string()), "{ambiguous}");
    assert_eq!(catalogue.stream(&*store, &chain[0].id.to_string()).unwrap(), chain[0]);
}

fn pruned(store: &Arc<dyn Store>, pruning: &Pruning) -> Pruned {
    prune(&**store, pruning, NEVER, |_, _| ()).unwrap()
}

#[test]
fn no_stream_loses_what_it_needs() {
    let (memory, store) = memory();
    let catalogue = line(
        &store,
        &[(1, None, &[]), (2, Some(1), &[]), (3, Some(2), &[]), (4, None, &[]), (5, Some(4), &[])],
    );
    let id = |number: usize| catalogue.streams[number - 1].id;
    let these = |streams, with_dependents| Pruning::These { streams, with_dependents };
    let refused =
        prune(&*store, &these(vec![id(2)], false), NEVER, |_, _| ()).unwrap_err().to_string();
    assert!(refused.contains("snapshot 3") && refused.contains("snapshot 2"), "{refused}");
    assert_eq!(Catalogue::load(&*store).unwrap(), catalogue);
    // The newest two and what they need.
    let result = pruned(&store, &Pruning::AllBut(3));
    assert_eq!((numbers(&result.removed), numbers(&result.needed)), (vec![], vec![1, 2]));
    let result = pruned(&store, &Pruning::AllBut(1));
    assert_eq!((numbers(&result.removed), numbers(&result.needed)), (vec![1, 2, 3], vec![4]));
    assert_eq!(result.deleted, 6);
    assert_nothing_is_left(&memory, &*store);
    let result = pruned(&store, &these(vec![id(4)], true));
    assert_eq!(numbers(&result.removed), [4, 5]);
    assert_nothing_is_left(&memory, &*store);
    assert!(matches!(
        prune(&*self::memory().1, &Pruning::Nothing, NEVER, |_, _| ()),
        Err(ObjectsError::NoStreams { .. })
    ));
}

#[test]
fn interrupted_sends_are_forgotten_when_their_time_is_over() {
    let (memory, store) = memory();
    const WEEK: u64 = 7 * 24 * 3600;
    let content = content(1, 1000);
    // Only the clock of the store counts.
    memory.set_clock(1_000_000);
    let mut upload = begin(&store, &description(1, None)).unwrap();
    upload.write_all(&content[..500]).unwrap();
    memory.set_clock(memory.now() + WEEK - 60);
    let result = prune(&*store, &Pruning::Nothing, WEEK, |_, _| ()).unwrap();
    assert_eq!((result.forgotten, result.deleted), (0, 0));
    assert_eq!(Catalogue::load(&*store).unwrap().unfinished.len(), 1);
    upload.write_all(&content[500..]).unwrap();
    memory.set_clock(memory.now() + 60);
    let result = prune(&*store, &Pruning::Nothing, WEEK, |_, _| ()).unwrap();
    assert_eq!(result.forgotten, 1);
    assert!(matches!(upload.finish(), Err(ObjectsError::Pruned { .. })));
    pruned(&store, &Pruning::Nothing);
    assert_nothing_is_left(&memory, &*store);
    assert!(Catalogue::load(&*store).unwrap().streams.is_empty());
}

/// Senders and prunes, all at once and over bad networks.
struct History {
    rng: StdRng,
    memory: Arc<MemoryStore>,
    key: Option<DataKey>,
    store: Arc<dyn Store>,
    senders: Vec<Sender>,
    networks: Vec<Arc<Network>>,
}

struct Sender {
    upload: Upload,
    network: Arc<Network>,
    content: Vec<u8>,
    written: usize,
}

const SNAPSHOTS: u8 = 4;

/// Two programs may send one snapshot in different ways.
fn contents(snapshot: u8) -> [Vec<u8>; 2] {
    let common = content(snapshot.into(), 250);
    [0, 1].map(|way| [&common[..], &content(u64::from(snapshot) * 2 + way, 400)].concat())
}

impl History {
    fn new(seed: u64, store: MemoryStore, key: Option<DataKey>) -> Self {
        let memory = Arc::new(store);
        let store = opened(Arc::clone(&memory), key.as_ref());
        let rng = StdRng::seed_from_u64(seed);
        Self { rng, memory, key, store, senders: Vec::new(), networks: Vec::new() }
    }

    /// A way to the store, which may end for a sender at any request.
    fn network(&mut self) -> (Arc<Network>, Arc<dyn Store>) {
        let trouble = if self.rng.random_bool(0.5) { 0.0 } else { 0.15 };
        let network = Arc::new(Network::new(Arc::clone(&self.memory), self.rng.random(), trouble));
        if self.rng.random_bool(0.3) {
            network.cut_after(self.rng.random_range(0..30));
        }
        self.networks.push(Arc::clone(&network));
        (Arc::clone(&network), opened(Persistent(network), self.key.as_ref()))
    }

    fn step(&mut self) {
        match self.rng.random_range(0..10) {
            0..2 => self.begin(),
            2..7 => self.write(),
            7..9 => self.end(),
            _ => self.prune(),
        }
        self.assert_sound();
    }

    fn begin(&mut self) {
        let snapshot = self.rng.random_range(0..SNAPSHOTS);
        let parent = snapshot.checked_sub(1);
        let content = contents(snapshot)[self.rng.random_range(0..2)].clone();
        let (network, path) = self.network();
        let description = description(snapshot, parent);
        let begun = Upload::begin(path, &name_of(&description), &description, PACE);
        if let Ok(Begun::Upload(upload)) = begun {
            self.senders.push(Sender { upload: *upload, network, content, written: 0 });
        }
    }

    fn pick(&mut self) -> Option<usize> {
        (!self.senders.is_empty()).then(|| self.rng.random_range(0..self.senders.len()))
    }

    fn write(&mut self) {
        let Some(at) = self.pick() else { return };
        let len = self.rng.random_range(1..300);
        let Sender { upload, network, content, written } = &mut self.senders[at];
        let rest = &content[*written..];
        let rest = &rest[..rest.len().min(len)];
        *written += rest.len();
        if upload.write_all(rest).is_err() {
            assert!(network.may_fail());
            self.senders.swap_remove(at);
        }
    }

    fn end(&mut self) {
        let Some(at) = self.pick() else { return };
        let Sender { mut upload, network, content, written } = self.senders.swap_remove(at);
        if self.rng.random_bool(0.3) {
            return;
        }
        let ended = upload.write_all(&content[written..]).map_err(|_| None);
        match ended.and_then(|()| upload.finish().map_err(Some)) {
            Ok(uploaded) => assert!(
                contents(uploaded.stream.description.snapshot.uuid[0])
                    .contains(&read(&self.store, &uploaded.stream))
            ),
            Err(Some(ObjectsError::Pruned { .. })) => {}
            Err(error) => assert!(network.may_fail(), "{error:?}"),
        }
    }

    fn prune(&mut self) {
        let (network, path) = self.network();
        let Ok(Some(catalogue)) = Catalogue::find(&*self.store) else { return };
        let pruning = match self.rng.random_range(0..3) {
            0 => Pruning::Nothing,
            1 => Pruning::AllBut(self.rng.random_range(0..3)),
            _ => {
                let streams = catalogue.streams.iter().map(|stream| stream.id);
                let streams = streams.filter(|_| self.rng.random_bool(0.4)).collect();
                Pruning::These { streams, with_dependents: true }
            }
        };
        let forget_after = if self.rng.random_bool(0.3) { 0 } else { NEVER };
        if let Err(error) = prune(&*path, &pruning, forget_after, |_, _| ()) {
            assert!(network.may_fail(), "{error}");
        }
    }

    /// Every stream in the catalogue is there, and what it needs too.
    fn assert_sound(&self) {
        let Some(catalogue) = Catalogue::find(&*self.store).unwrap() else { return };
        for stream in &catalogue.streams {
            let snapshot = stream.description.snapshot.uuid[0];
            assert!(contents(snapshot).contains(&read(&self.store, stream)), "{stream:?}");
        }
    }

    /// All is calm, and everything is sent and pruned once more.
    fn finish(mut self) {
        self.senders.clear();
        if self.rng.random_bool(0.5) {
            self.networks.iter().for_each(|network| network.calm());
        }
        self.assert_sound();
        for snapshot in 0..SNAPSHOTS {
            let description = description(snapshot, snapshot.checked_sub(1));
            let (store, name) = (Arc::clone(&self.store), name_of(&description));
            let begun = Upload::begin(store, &name, &description, PACE).unwrap();
            if let Begun::Upload(mut upload) = begun {
                upload.write_all(&contents(snapshot)[0]).unwrap();
                upload.finish().unwrap();
            }
        }
        self.assert_sound();
        prune(&*self.store, &Pruning::Nothing, 0, |_, _| ()).unwrap();
        self.assert_sound();
        assert_nothing_is_left(&self.memory, &*self.store);
        let catalogue = Catalogue::load(&*self.store).unwrap();
        assert_eq!(catalogue.streams.len(), usize::from(SNAPSHOTS));
        let last = catalogue.maker(&[SNAPSHOTS - 1; 16]).unwrap();
        assert_eq!(catalogue.chain(&*self.store, last, &[]).unwrap().len(), usize::from(SNAPSHOTS));
    }
}

/// Threads of the senders race with each other, so a seed repeats a history only nearly.
fn assert_all_end_well(count: u64, store: fn() -> MemoryStore, key: fn() -> Option<DataKey>) {
    explore(count, |seed| {
        let mut history = History::new(seed, store(), key());
        let steps = history.rng.random_range(5..80);
        (0..steps).for_each(|_| history.step());
        history.finish();
    });
}

#[test]
fn every_history_leaves_a_catalogue_of_what_is_there() {
    assert_all_end_well(300, MemoryStore::default, || None);
}

#[test]
fn every_history_in_a_directory_leaves_a_catalogue_of_what_is_there() {
    assert_all_end_well(100, MemoryStore::in_a_directory, || None);
}

#[test]
fn every_encrypted_history_leaves_a_catalogue_of_what_is_there() {
    let key = || Some(DataKey::random());
    assert_all_end_well(100, MemoryStore::default, key);
}
