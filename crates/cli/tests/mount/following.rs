//! Mounts for reading that follow a writer.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use larder_testkit::manifest::{Manifest, assert_same};
use rustix::io::Errno;

use crate::support::{Mounted, comparable, larder, succeed, wait_until};

fn commit(mountpoint: &Path) {
    succeed(larder().args(["filesystem", "sync"]).arg(mountpoint));
}

/// A mount of the URL `url` for reading that follows.
fn follower(url: &str) -> Mounted {
    let mut reader = Mounted::at(url.to_owned(), Vec::new());
    reader.mount(&["-o", "ro,follow=1"]);
    reader
}

fn health(reader: &Mounted) -> String {
    succeed(larder().arg("health").arg(reader.path()))
}

#[test]
fn a_reader_sees_each_commit_of_a_writer() {
    let mut writer = Mounted::on_objects();
    let url = writer.source().to_str().unwrap().to_owned();
    writer.mount(&["--create", "4G"]);
    writer.shell(
        "mkdir -p d/e && seq 10000 >d/numbers && echo one >same && echo gone >gone && ln -s same link",
    );
    commit(&writer.path());
    let mut reader = follower(&url);
    let seen = |reader: &Mounted| comparable(Manifest::of_tree(&reader.path()));
    assert_same(&seen(&reader), &comparable(Manifest::of_tree(&writer.path())));
    // The kernel has all of it, and programs have some of it open.
    let same = File::open(reader.path().join("same")).unwrap();
    let gone = File::open(reader.path().join("gone")).unwrap();
    let old = |name: &str| fs::symlink_metadata(reader.path().join(name)).is_ok();
    assert!(old("gone") && !old("new"));
    writer.shell(
        "echo two >same && rm gone link && ln -s d link && mv d/numbers d/e/moved && mkdir new
         setfattr -n user.taste -v sweet same && chmod 600 same && seq 20000 >>d/e/moved",
    );
    writer.shell("mv same other && echo three >same");
    commit(&writer.path());
    let expected = comparable(Manifest::of_tree(&writer.path()));
    wait_until("the reader sees the commit", || old("new"));
    assert_same(&seen(&reader), &expected);
    // A file that has moved is the same; one that has gone is not another.
    let mut text = [0; 4];
    same.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"two\n");
    wait_until("a file that has gone is stale", || {
        let error = gone.read_at(&mut text, 0).err().and_then(|error| error.raw_os_error());
        error == Some(Errno::STALE.raw_os_error())
    });
    drop((same, gone));
    // Nothing is written there, and a commit that comes later is seen, too.
    assert!(fs::write(reader.path().join("mine"), "x").is_err());
    writer.shell("rm -r d && seq 5 >five");
    commit(&writer.path());
    wait_until("the reader sees the next commit", || !old("d"));
    assert_same(&seen(&reader), &comparable(Manifest::of_tree(&writer.path())));
    // So is what another writer makes of it.
    writer.unmount();
    succeed(larder().args(["cp", "/etc/hostname", &format!("{url}:/later")]));
    wait_until("the reader sees the next writer", || old("later"));
    reader.unmount();
}

/// Each file has the number of its commit, and so has each page of it.
#[test]
fn a_reader_sees_whole_commits_only() {
    let mut writer = Mounted::on_objects();
    let url = writer.source().to_str().unwrap().to_owned();
    writer.mount(&["--create", "4G"]);
    let write = |number: u32| {
        let content = format!("{number:07}\n").repeat(32 << 10);
        for name in ["a", "b", "c"] {
            let path = writer.path().join(name);
            fs::write(path.with_extension("new"), &content).unwrap();
            fs::rename(path.with_extension("new"), &path).unwrap();
            let in_place = writer.path().join(format!("in-place-{name}"));
            let in_place = File::options().write(true).create(true).truncate(false).open(in_place);
            in_place.unwrap().write_all_at(content.as_bytes(), 0).unwrap();
        }
        commit(&writer.path());
    };
    write(0);
    let reader = follower(&url);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let read = || {
            let mut last = [0; 2];
            while !ends.load(Ordering::Relaxed) {
                for (name, last) in ["a", "in-place-b"].into_iter().zip(&mut last) {
                    let mut content = String::new();
                    let Ok(mut file) = File::open(reader.path().join(name)) else { continue };
                    if file.read_to_string(&mut content).is_err() {
                        // It has gone meanwhile.
                        continue;
                    }
                    // One request reads one state; a file that is read by several may change.
                    for part in content.as_bytes().chunks(4096) {
                        assert!(part.chunks(8).all(|line| line == &part[..8]), "a page is mixed");
                    }
                    let number: u32 = content[..7].parse().unwrap();
                    assert!(number >= *last, "{number} after {last}");
                    *last = number;
                }
            }
        };
        let readers = [scope.spawn(read), scope.spawn(read)];
        for number in 1..12 {
            write(number);
        }
        wait_until("the last commit is seen", || {
            let text = fs::read_to_string(reader.path().join("a")).unwrap_or_default();
            text.starts_with("0000011")
        });
        ends.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
    });
    drop(reader);
    writer.unmount();
}

#[test]
fn what_cannot_be_followed_stays_as_it_was_seen_and_the_health_says_why() {
    let mut writer = Mounted::on_objects();
    let url = writer.source().to_str().unwrap().to_owned();
    writer.mount(&["--create", "4G"]);
    writer.shell("seq 100 >numbers");
    writer.unmount();
    let mut reader = follower(&url);
    let objects = Path::new(url.strip_prefix("file://").unwrap());
    fs::rename(objects.join("manifest"), objects.join("elsewhere")).unwrap();
    wait_until("the health says it", || health(&reader).contains("manifest"));
    assert_eq!(reader.shell("tail -1 numbers"), "100\n");
    fs::rename(objects.join("elsewhere"), objects.join("manifest")).unwrap();
    wait_until("the health is well", || health(&reader).contains("State:           well"));
    // Another file system takes its place.
    let old = objects.with_extension("old");
    fs::create_dir(&old).unwrap();
    for entry in fs::read_dir(objects).unwrap() {
        let entry = entry.unwrap();
        fs::rename(entry.path(), old.join(entry.file_name())).unwrap();
    }
    let mut other = Mounted::at(url.clone(), Vec::new());
    other.mount(&["--create", "4G"]);
    other.unmount();
    wait_until("the reader notices", || health(&reader).contains("another file system is here"));
    reader.unmount();
}

#[test]
fn only_a_newest_state_on_object_storage_is_followed() {
    let mut mounted = Mounted::on_objects();
    let url = mounted.source().to_str().unwrap().to_owned();
    mounted.mount(&["--create", "1G"]);
    mounted.unmount();
    let folder = mounted.path().to_str().unwrap().to_owned();
    let refused = |options: &str, device: &str| {
        let output = larder().args(["mount", "-o", options, device, &folder]).output().unwrap();
        assert!(!output.status.success(), "{options} {device}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(refused("follow", &url).contains("follow goes with ro"));
    assert!(refused("ro,follow=soon", &url).contains("follow=soon"));
    assert!(refused("ro,follow", &format!("{url}@0")).contains("a kept state never changes"));
    let image = mounted.folder().join("disk.img");
    succeed(larder().args(["export", &url]).arg(&image));
    let said = refused("ro,follow", image.to_str().unwrap());
    assert!(said.contains("follow is for file systems on object storage"), "{said}");
    let mut reader = follower(&url);
    let remount = |options: &str| {
        let output = larder().args(["mount", "-o", options]).arg(reader.path()).output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = remount("remount,rw");
    assert!(said.contains("follow goes with ro"), "{said}");
    let said = remount("remount,ro,follow=9");
    assert!(said.contains("follow can only be set when mounting"), "{said}");
    reader.unmount();
}

/// What a mount shows is held, and the commands that look after objects say so.
#[test]
fn what_a_mount_shows_stays() {
    let mut writer = Mounted::on_objects();
    let url = writer.source().to_str().unwrap().to_owned();
    writer.mount(&["--create", "4G"]);
    writer.shell("head -c 20M /dev/urandom >random && sha256sum random >sum");
    writer.unmount();
    let objects = |arguments: &[&str]| succeed(larder().arg("objects").args(arguments).arg(&url));
    wait_until("the server has gone", || objects(&["info"]).contains(": closed"));
    objects(&["gc", "--keep", "", "--delete-after", "0s"]);
    let mut reader = Mounted::at(url.clone(), Vec::new());
    reader.mount(&["-o", "ro"]);
    let info = objects(&["info"]);
    assert!(info.contains("Lease:              process "), "{info}");
    let health = health(&reader);
    assert!(health.contains("Shown state:") && health.contains("with a lease"), "{health}");
    succeed(larder().args(["rm", &format!("{url}:/random")]));
    for _ in 0..2 {
        objects(&["gc"]);
    }
    reader.shell("sha256sum -c sum");
    let refused = larder().args(["objects", "delete", "--force", &url]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("somebody reads it"), "{said}");
    reader.unmount();
    wait_until("the lease has ended", || !objects(&["info"]).contains("Lease:"));
    let states = objects(&["states"]);
    assert!(states.lines().last().unwrap().ends_with("until a later one"), "{states}");
}
