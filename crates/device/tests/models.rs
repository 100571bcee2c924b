//! Devices in memory against the simplest models of them.

use std::io::IoSlice;

use larder_device::{
    CountingDevice, Counts, Device, Entry, Event, FileDevice, MemoryDevice, Recording, Survival,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Three pages of a memory device, the last in part.
const LEN: u64 = 40_000;

#[derive(Debug, Clone)]
enum Step {
    Write { offset: u64, len: usize, byte: u8 },
    Discard { offset: u64, len: u64 },
    Read { offset: u64, len: usize },
    SetLen { len: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let offset = || 0..LEN + 5000;
    prop_oneof![
        (offset(), 0..30_000_usize, any::<u8>()).prop_map(|(offset, len, byte)| Step::Write {
            offset,
            len,
            byte
        }),
        (offset(), 0..LEN).prop_map(|(offset, len)| Step::Discard { offset, len }),
        (offset(), 0..30_000_usize).prop_map(|(offset, len)| Step::Read { offset, len }),
        (0..LEN + 20_000).prop_map(|len| Step::SetLen { len }),
    ]
}

fn content(device: &dyn Device) -> Vec<u8> {
    let mut content = vec![0xAA; device.len_bytes() as usize];
    device.read_at(&mut content, 0).unwrap();
    content
}

/// The part of `model` that a call is about, if it lies within.
fn part(model: &mut [u8], offset: u64, len: usize) -> Option<&mut [u8]> {
    model.get_mut(offset as usize..offset as usize + len)
}

proptest! {
    #[test]
    fn memory_behaves_as_an_array(steps in vec(step(), 0..30), snapshot_after in 0..30_usize) {
        let device = MemoryDevice::new("memory", LEN);
        let mut model = vec![0; LEN as usize];
        let mut snapshot = (device.snapshot(), model.clone());
        for (number, step) in steps.into_iter().enumerate() {
            if number == snapshot_after {
                snapshot = (device.snapshot(), model.clone());
            }
            match step {
                Step::Write { offset, len, byte } => {
                    let (head, tail) = (vec![byte; len / 3], vec![!byte; len - len / 3]);
                    let result =
                        device.write_vectored_at(&[IoSlice::new(&head), IoSlice::new(&tail)], offset);
                    let place = part(&mut model, offset, len);
                    prop_assert_eq!(result.is_ok(), place.is_some());
                    if let Some(place) = place {
                        place.copy_from_slice(&[head, tail].concat());
                    }
                }
                Step::Discard { offset, len } => {
                    let place = part(&mut model, offset, len as usize);
                    prop_assert_eq!(device.discard(offset, len).is_ok(), place.is_some());
                    if let Some(place) = place {
                        place.fill(0);
                    }
                }
                Step::Read { offset, len } => {
                    let mut buf = vec![0xAA; len];
                    let result = device.read_at(&mut buf, offset);
                    let place = part(&mut model, offset, len);
                    prop_assert_eq!(result.is_ok(), place.is_some());
                    if let Some(place) = place {
                        prop_assert!(buf == place);
                    }
                }
                Step::SetLen { len } => {
                    device.set_len(len);
                    model.resize(len as usize, 0);
                }
            }
        }
        prop_assert!(content(&device) == model);
        prop_assert!(content(&snapshot.0) == snapshot.1, "a snapshot stays as it was");
    }
}

/// A recorded step on one of two devices.
#[derive(Debug, Clone)]
enum Change {
    Write { offset: u64, len: usize, byte: u8 },
    Discard { offset: u64, len: u64 },
    Flush,
}

const RECORDED_LEN: u64 = 8192;

fn change() -> impl Strategy<Value = (usize, Change)> {
    let range = || (0..RECORDED_LEN).prop_flat_map(|at| (Just(at), 0..=RECORDED_LEN - at));
    let change = prop_oneof![
        4 => (range(), any::<u8>()).prop_map(|((offset, len), byte)| {
            Change::Write { offset, len: len as usize, byte }
        }),
        1 => range().prop_map(|(offset, len)| Change::Discard { offset, len }),
        2 => Just(Change::Flush),
    ];
    (0..2_usize, change)
}

fn survival() -> impl Strategy<Value = Survival> {
    prop_oneof![
        Just(Survival::Lost),
        Just(Survival::Whole),
        (0..18_u64).prop_map(|sectors| Survival::Torn { sectors }),
    ]
}

/// Two devices after a power cut at `cut`, worked out from scratch.
fn model_power_cut(changes: &[(usize, Change)], cut: usize, fates: &[Survival]) -> [Vec<u8>; 2] {
    let mut models = [vec![1; RECORDED_LEN as usize], vec![2; RECORDED_LEN as usize]];
    for (position, (device, change)) in changes[..cut].iter().enumerate() {
        let flushed = changes[position..cut]
            .iter()
            .any(|(other, later)| other == device && matches!(later, Change::Flush));
        let bytes = match fates[position] {
            _ if flushed => usize::MAX,
            Survival::Lost => 0,
            Survival::Whole => usize::MAX,
            Survival::Torn { sectors } => sectors as usize * 512,
        };
        let (offset, len, byte) = match *change {
            Change::Write { offset, len, byte } => (offset, len, byte),
            Change::Discard { offset, len } => (offset, len as usize, 0),
            Change::Flush => continue,
        };
        models[*device][offset as usize..][..len.min(bytes)].fill(byte);
    }
    models
}

proptest! {
    #[test]
    fn replay_rebuilds_any_power_cut(
        changes in vec(change(), 1..40),
        fates in vec(survival(), 40),
    ) {
        let recording = Recording::new();
        let devices = [1, 2].map(|byte| {
            let base = MemoryDevice::new(format!("disk{byte}"), RECORDED_LEN);
            base.write_at(&[byte; RECORDED_LEN as usize], 0).unwrap();
            recording.attach(&base)
        });
        for (device, change) in &changes {
            let device = &devices[*device];
            match *change {
                Change::Write { offset, len, byte } => device.write_at(&vec![byte; len], offset),
                Change::Discard { offset, len } => device.discard(offset, len),
                Change::Flush => device.flush(),
            }
            .unwrap();
        }
        prop_assert_eq!(recording.position(), changes.len());

        let mut replay = recording.replay();
        for cut in 0..=changes.len() {
            replay.advance_to(cut);
            prop_assert_eq!(replay.position(), cut);
            let images = replay.power_cut(|position, _| fates[position]);
            let models = model_power_cut(&changes, cut, &fates);
            for (image, model) in images.iter().zip(&models) {
                prop_assert!(&content(image) == model, "power cut at {}", cut);
            }
        }
        prop_assert!(replay.step().is_none());
        for (image, device) in replay.images().iter().zip(&devices) {
            prop_assert!(content(image) == content(device), "the end is what is live");
        }
    }
}

#[test]
fn replay_tells_what_is_unflushed() {
    let recording = Recording::new();
    let [first, second] =
        ["first", "second"].map(|name| recording.attach(&MemoryDevice::new(name, 4096)));
    first.write_vectored_at(&[IoSlice::new(b"but"), IoSlice::new(b"ter")], 10).unwrap();
    second.write_at(b"jam", 0).unwrap();
    second.flush().unwrap();
    assert!(first.write_at(&[0; 2], 4095).is_err());
    assert_eq!(recording.position(), 3, "what fails is not recorded");

    let mut replay = recording.replay();
    replay.advance_to(usize::MAX);
    let event = Event::Write { offset: 10, data: b"butter"[..].into() };
    assert_eq!(replay.unflushed(), [(0, Entry { device: 0, event })]);
}

#[test]
fn memory_is_sparse() {
    let device = MemoryDevice::new("memory", 1 << 60);
    assert_eq!(device.allocated_bytes(), 0);
    device.write_at(b"x", (1 << 60) - 1).unwrap();
    device.write_at(b"x", 0).unwrap();
    assert!(device.allocated_bytes() <= 1 << 20);
    device.discard(0, 1 << 60).unwrap();
    assert_eq!(device.allocated_bytes(), 0);
}

#[test]
fn counts_what_passes() {
    let directory = tempfile::tempdir().unwrap();
    let file = FileDevice::create(directory.path().join("disk.img"), 8192).unwrap();
    let device = CountingDevice::new(std::sync::Arc::new(file));
    device.write_at(&[1; 100], 0).unwrap();
    device.write_vectored_at(&[IoSlice::new(&[2; 50]); 2], 100).unwrap();
    device.flush().unwrap();
    device.readahead(0, 4096);
    device.read_at(&mut [0; 10], 95).unwrap();
    let expected = Counts {
        reads: 1,
        read_bytes: 10,
        writes: 2,
        written_bytes: 200,
        readaheads: 1,
        readahead_bytes: 4096,
        flushes: 1,
    };
    assert_eq!(device.counts(), expected);
    assert_eq!(content(&device)[99..=100], [1, 2]);
}
