//! Devices for tests against the simplest models of them.

use std::io::IoSlice;
use std::sync::Arc;

use larder_device::{Device, MemoryDevice};
use larder_test_devices::{CountingDevice, Counts, Entry, Event, Recording, Survival};
use proptest::collection::vec;
use proptest::prelude::*;

fn content(device: &dyn Device) -> Vec<u8> {
    let mut content = vec![0xAA; device.len_bytes() as usize];
    device.read_at(&mut content, 0).unwrap();
    content
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
            prop_assert!(content(image) == content(device), "the end is the live content");
        }
    }
}

#[test]
fn replay_knows_unflushed_changes() {
    let recording = Recording::new();
    let [first, second] =
        ["first", "second"].map(|name| recording.attach(&MemoryDevice::new(name, 4096)));
    first.write_vectored_at(&[IoSlice::new(b"but"), IoSlice::new(b"ter")], 10).unwrap();
    second.write_at(b"jam", 0).unwrap();
    second.flush().unwrap();
    assert!(first.write_at(&[0; 2], 4095).is_err());
    assert_eq!(recording.position(), 3, "failed calls are not recorded");

    let mut replay = recording.replay();
    replay.advance_to(usize::MAX);
    let event = Event::Write { offset: 10, data: b"butter"[..].into() };
    assert_eq!(replay.unflushed(), [(0, Entry { device: 0, event })]);
}

#[test]
fn calls_that_pass_are_counted() {
    let device = CountingDevice::new(Arc::new(MemoryDevice::new("memory", 8192)));
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
