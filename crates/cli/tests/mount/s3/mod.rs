//! File systems and streams on a server that speaks S3, behind a network that is as bad as networks
//! are.

mod killed;
mod network;
mod server;

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::slice::from_ref;
use std::thread;
use std::time::Duration;

use larder_testkit::manifest::{Manifest, assert_same};
use larder_testkit::{KernelMount, effort};
use rustix::process::Signal;
use serde_json::Value;

use crate::streams::sent;
use crate::support::{Mounted, comparable, succeed, wait_until};
use network::Weather;
use server::S3;

/// Each request takes longer, and some fail.
const FAR_AWAY: Weather =
    Weather { delay: Duration::from_millis(10), errors_percent: 4, is_down: false, refusal: None };

fn mounted(s3: &S3, place: &str) -> Mounted {
    let mut mounted = Mounted::at(S3::url(place), s3.environment());
    mounted.serve(&["--create", "16G"]);
    mounted
}

fn write_and_sync(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[test]
fn a_bucket_is_a_file_system() {
    let s3 = S3::in_memory();
    let mut mounted = Mounted::at(S3::url("pantry"), s3.environment());
    let (url, image) = (S3::url("pantry"), mounted.image());
    s3.set(FAR_AWAY);
    mounted.mount(&["--create", "16G"]);
    mounted.shell(
        "cp -r /usr/share/common-licenses . && head -c 30M /dev/urandom >random
         sync random && rm -r common-licenses/GPL* && seq 100000 >numbers && sync numbers",
    );
    let files = comparable(Manifest::of_tree(&mounted.path()));
    mounted.unmount();
    succeed(s3.larder().args(["check", &url]));
    succeed(s3.larder().args(["objects", "verify", &url]));
    succeed(s3.larder().args(["objects", "gc", &url]));
    assert!(succeed(s3.larder().args(["ls", &format!("{url}:/")])).contains("numbers\n"));
    succeed(s3.larder().args(["export", &url]).arg(&image));
    let kernel = KernelMount::open(from_ref(&image), "ro");
    assert_same(&comparable(Manifest::of_tree(kernel.path())), &files);
    drop(kernel);
    assert!(s3.requests() > 50, "they went another way");

    // Somebody without the keys gets an error without any key.
    let output = s3.larder().args(["ls", "s3://other/pantry:/"]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && !message.contains("secret"), "{message}");
}

/// An outage of some seconds, of a minute with more effort: programs wait, those that write do not
/// fill the memory, and afterwards everything goes on.
#[test]
fn programs_wait_through_an_outage() {
    let s3 = S3::in_memory();
    let mut mounted = mounted(&s3, "pantry");
    mounted.shell("head -c 20M /dev/urandom >before && sync before");
    s3.set(Weather { is_down: true, ..Weather::default() });
    let begin = |line: &str| {
        let mut program = Command::new("bash");
        program.args(["-euo", "pipefail", "-c", line]).current_dir(mounted.path());
        program.spawn().unwrap()
    };
    let mut programs = [
        begin("head -c 700M /dev/zero | tr '\\0' x >large && sync large"),
        begin("for i in {1..300}; do echo $i >small.$i; done; sync small.300"),
        begin("echo more >more && sync more"),
    ];
    thread::sleep(Duration::from_secs(5 * effort().min(12)));
    for program in &mut programs {
        assert!(program.try_wait().unwrap().is_none(), "it has not waited for the server");
    }
    let peak_mib = mounted.peak_kib() >> 10;
    s3.set(Weather::default());
    for mut program in programs {
        assert!(program.wait().unwrap().success());
    }
    assert!(peak_mib < 600, "{peak_mib} MiB");
    assert_eq!(mounted.shell("ls small.* | wc -l"), "300\n");
    mounted.unmount();
    let log = fs::read_to_string(mounted.log()).unwrap();
    assert!(log.contains("trying again for"), "{log}");
    succeed(s3.larder().args(["check", "--check-data-csum", &S3::url("pantry")]));
}

/// The server itself stands still, with its connections open.
#[test]
fn a_server_that_stands_still_is_waited_for() {
    let s3 = S3::in_memory();
    let mut mounted = mounted(&s3, "pantry");
    s3.signal(Signal::STOP);
    let mut waiting = Command::new("bash")
        .args(["-c", "echo waited >waited && sync waited"])
        .current_dir(mounted.path())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_secs(3));
    assert!(waiting.try_wait().unwrap().is_none(), "sync has not waited for the server");
    s3.signal(Signal::CONT);
    assert!(waiting.wait().unwrap().success());
    assert_eq!(mounted.shell("cat waited"), "waited\n");
    mounted.unmount();
}

/// A command waits as long as the user says, once, and not for each sector that it wants.
#[test]
fn a_server_that_is_gone_is_waited_for_once() {
    let s3 = S3::in_memory();
    let mut mounted = mounted(&s3, "pantry");
    mounted.shell("head -c 30M /dev/urandom >random");
    mounted.unmount();
    s3.set(Weather { delay: Duration::from_millis(300), ..Weather::default() });
    let before = s3.requests();
    let mut cat = s3.larder();
    cat.args(["cat", &format!("{}:/random", S3::url("pantry"))]).env("LARDER_PATIENCE", "5s");
    let cat = cat.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it reads", || s3.requests() > before + 2);
    s3.set(Weather { is_down: true, ..Weather::default() });
    let output = cat.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("ERROR: "), "{said}");
    assert_eq!(said.matches("trying again for").count(), 1, "{said}");
}

/// A server that refuses changes for good: the mount says so and becomes read-only, and the last
/// state is what was synced.
fn assert_ends_writing(refusal: &'static str, said: &str) {
    let s3 = S3::in_memory();
    let url = S3::url("pantry");
    let mut mounted = mounted(&s3, "pantry");
    write_and_sync(&mounted.join("kept"), b"kept").unwrap();
    s3.set(Weather { refusal: Some(refusal), ..Weather::default() });
    let error = write_and_sync(&mounted.join("lost"), b"lost").unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(5 | 30)), "{error}");
    let error = File::create(mounted.join("later")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(30), "{error}");
    assert_eq!(mounted.shell("cat kept"), "kept");
    let log = || fs::read_to_string(mounted.log()).unwrap();
    wait_until("the log has it", || log().contains(said) && log().contains("s3://photos/pantry"));
    assert!(!log().contains("secret"), "{}", log());
    let _ = s3.larder().arg("umount").arg(mounted.path()).output();
    mounted.kill();
    s3.set(Weather::default());
    succeed(s3.larder().args(["check", &url]));
    mounted.serve(&[]);
    assert_eq!(mounted.shell("ls && cat kept"), "kept\nkept");
    write_and_sync(&mounted.join("more"), b"more").unwrap();
    mounted.unmount();
}

#[test]
fn keys_that_become_wrong_end_writing() {
    assert_ends_writing("403 Forbidden", "access is denied");
}

#[test]
fn a_full_bucket_ends_writing() {
    assert_ends_writing("507 Insufficient Storage", "507");
}

/// Streams are sent and received in bad weather, and a sender that Ctrl-C ended goes on.
#[test]
fn streams_survive_bad_weather_and_interruptions() {
    let s3 = S3::in_memory();
    let url = S3::url("backups");
    let mut sender = Mounted::new();
    sender.shell("head -c 60M /dev/urandom >random && seq 100000 >numbers");
    let files = sent(&sender.path());
    succeed(
        s3.larder()
            .args(["subvolume", "snapshot", "-r"])
            .arg(sender.path())
            .arg(sender.join("one")),
    );
    s3.set(Weather { delay: Duration::from_millis(100), ..FAR_AWAY });
    let send = || {
        let mut send = s3.larder();
        send.args(["send", "--to", &url]).arg(sender.join("one"));
        send
    };
    let mut interrupted = send().stderr(Stdio::null()).spawn().unwrap();
    let before = s3.requests();
    wait_until("parts are on their way", || s3.requests() > before + 12);
    rustix::process::kill_process(rustix::process::Pid::from_child(&interrupted), Signal::INT)
        .unwrap();
    assert!(!interrupted.wait().unwrap().success());
    let list = |what: &str| -> Value {
        let said = succeed(s3.larder().args(["--format", "json", "streams", "list", &url]));
        serde_json::from_str::<Value>(&said).unwrap()["streams-list"][what].clone()
    };
    assert_eq!(list("unfinished")[0]["name"], "one");
    succeed(&mut send());
    assert_eq!(list("streams")[0]["name"], "one");
    succeed(s3.larder().args(["streams", "verify", &url]));
    let mut receiver = Mounted::new();
    succeed(s3.larder().args(["receive", "--from", &url]).arg(receiver.path()));
    assert_same(&sent(&receiver.join("one")), &files);
    receiver.unmount();
    sender.unmount();
}
