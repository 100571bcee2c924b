//! A killed server leaves a file system in the state of some commit.

use std::fs::{self, File};
use std::io::Write;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Mounted, wait_until};

#[test]
pub(crate) fn a_killed_server_leaves_a_sound_file_system() {
    let mut mounted = Mounted::in_foreground();
    fs::create_dir(mounted.join("work")).unwrap();
    let mut kept = File::create_new(mounted.join("kept")).unwrap();
    kept.write_all(&vec![1; 300_000]).unwrap();
    kept.sync_all().unwrap();
    File::open(mounted.path()).unwrap().sync_all().unwrap();
    let work = mounted.join("work");
    let worker = thread::spawn(move || {
        for number in 0.. {
            let path = work.join(format!("{number}"));
            let done = fs::write(&path, vec![number as u8; number % 9000])
                .and_then(|()| if number % 3 == 0 { fs::remove_file(&path) } else { Ok(()) })
                .and_then(
                    |()| if number % 50 == 0 { File::open(&work)?.sync_all() } else { Ok(()) },
                );
            if done.is_err() {
                return;
            }
        }
    });
    let work = mounted.join("work");
    wait_until("much is done", || fs::read_dir(&work).is_ok_and(|names| names.count() > 300));
    mounted.kill();
    worker.join().unwrap();
    mounted.check();
    mounted.mount(&[]);
    assert_eq!(fs::read(mounted.join("kept")).unwrap(), vec![1; 300_000]);
    assert!(fs::read_dir(mounted.join("work")).unwrap().count() > 30);
    fs::write(mounted.join("after"), "after").unwrap();
    mounted.finish();
}

#[test]
pub(crate) fn signals_unmount() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut mounted = Mounted::in_foreground();
        fs::write(mounted.join("f"), "kept").unwrap();
        mounted.end(signal);
        assert!(!mounted.join("f").exists());
        mounted.check();
        mounted.mount(&[]);
        assert_eq!(fs::read(mounted.join("f")).unwrap(), b"kept");
        mounted.finish();
    }
}

#[test]
pub(crate) fn a_signal_waits_for_users_of_the_mount() {
    let mut mounted = Mounted::in_foreground();
    let mut file = File::create_new(mounted.join("f")).unwrap();
    let writer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        file.write_all(b"late").unwrap();
    });
    mounted.end(Signal::TERM);
    writer.join().unwrap();
    mounted.mount(&[]);
    assert_eq!(fs::read(mounted.join("f")).unwrap(), b"late");
    mounted.finish();
}
