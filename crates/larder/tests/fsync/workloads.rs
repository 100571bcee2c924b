//! Workloads of one and two operations: what the last sync promised is there after a power cut,
//! whether the kernel replays the log or the library.

use larder_power_cuts::Workload;

use super::played::play;
use super::synced::State;
use super::*;

/// One in so many workloads is done, divided by the effort: of one and of two operations on files,
/// and of two on subvolumes.
const SAMPLED: [u64; 3] = [29, 20_011, 397];

#[test]
fn kernel_and_library_agree_about_workloads() {
    let effort = larder_testkit::effort();
    let [one, two, on_subvolumes] = SAMPLED.map(|sampled| (sampled / effort).max(1) as usize);
    let seed = larder_testkit::seed(0) as usize;
    let workloads = Workload::of_one().skip(seed % one).step_by(one);
    let workloads = workloads.chain(Workload::of_two().skip(seed % two).step_by(two));
    let on = Workload::of_two_on_subvolumes().skip(seed % on_subvolumes).step_by(on_subvolumes);
    let workloads = workloads.chain(on);
    let image = KernelImage::empty(&ImageSpec::new("workloads"));
    let empty = load(&image.devices()[0]);
    let (mut done, mut logged) = (0, 0);
    for workload in workloads {
        let what = workload.to_string();
        let recording = Recording::new();
        let fs = open(Arc::new(recording.attach(&empty)));
        let played = play(&workload, &fs, &recording);
        let left = cut(&recording);
        logged += usize::from(has_log(&left));
        done += 1;
        recover(&image, &left, &what);
        let recovered = open(Arc::new(left));
        let found = State::of(&recovered.subvolume("/").unwrap());
        let position = recording.position();
        played.history.judge(position, &what, |promised, since| promised.is_kept(since, &found));
    }
    println!("{done} workloads, {logged} left a log");
    assert!(logged * 2 > done, "{logged} of {done}");
}
