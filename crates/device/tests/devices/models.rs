//! Devices in memory against the simplest models of them.

use std::io::IoSlice;

use larder_device::{Device, MemoryDevice};
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

/// The part of `model` for a call, if it lies within.
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
