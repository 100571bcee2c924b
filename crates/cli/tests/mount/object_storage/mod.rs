//! File systems and streams on servers of object storage, behind a network that is as bad as networks
//! are.

mod killed;
mod network;
mod server;
mod services;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
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
use server::Bucket;

/// Each request takes longer, and some fail.
const FAR_AWAY: Weather =
    Weather { delay: Duration::from_millis(10), errors_percent: 4, is_down: false, refusal: None };

const EMPTY_LIST: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">
<Name>photos</Name><KeyCount>0</KeyCount><IsTruncated>false</IsTruncated></ListBucketResult>"#;

fn mounted(bucket: &Bucket, place: &str) -> Mounted {
    let mut mounted = Mounted::at(bucket.url(place), bucket.environment());
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
    let bucket = Bucket::in_memory();
    assert_is_a_file_system(&bucket);

    // Somebody without the keys gets an error without any key.
    let output = bucket.larder().args(["ls", "s3://other/pantry:/"]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && !message.contains("secret"), "{message}");
}

#[test]
fn a_bucket_of_google_is_a_file_system() {
    assert_is_a_file_system(&Bucket::of_google());
}

#[test]
fn an_encrypted_bucket_is_a_file_system() {
    assert_is_a_file_system(&Bucket::of_google().encrypted());
}

#[test]
#[ignore = "needs Azurite, a download"]
fn a_container_of_azure_is_a_file_system() {
    assert_is_a_file_system(&Bucket::of_azure());
}

fn assert_is_a_file_system(bucket: &Bucket) {
    let mut mounted = Mounted::at(bucket.url("pantry"), bucket.environment());
    let (url, image) = (bucket.url("pantry"), mounted.image());
    bucket.set(FAR_AWAY);
    mounted.mount(bucket.create_arguments());
    mounted.shell(
        "cp -r /usr/share/common-licenses . && head -c 30M /dev/urandom >random
         sync random && rm -r common-licenses/GPL* && seq 100000 >numbers && sync numbers",
    );
    let files = comparable(Manifest::of_tree(&mounted.path()));
    mounted.unmount();
    succeed(bucket.larder().args(["check", &url]));
    succeed(bucket.larder().args(["objects", "verify", &url]));
    succeed(bucket.larder().args(["objects", "gc", &url]));
    assert!(succeed(bucket.larder().args(["ls", &format!("{url}:/")])).contains("numbers\n"));
    succeed(bucket.larder().args(["export", &url]).arg(&image));
    let kernel = KernelMount::open(from_ref(&image), "ro");
    assert_same(&comparable(Manifest::of_tree(kernel.path())), &files);
    drop(kernel);
    assert!(bucket.requests() > 50, "they went another way");

    mounted.serve(&[]);
    mounted.shell("seq 200000 >numbers && sync numbers");
    mounted.kill();
    mounted.serve(&[]);
    assert_eq!(mounted.shell("wc -l <numbers"), "200000\n");
    mounted.unmount();
    succeed(bucket.larder().args(["check", "--check-data-csum", &url]));
}

/// An outage of some seconds, of a minute with more effort: programs wait, those that write do not
/// fill the memory, and afterwards everything goes on.
#[test]
fn programs_wait_through_an_outage() {
    let bucket = Bucket::in_memory();
    let mut mounted = mounted(&bucket, "pantry");
    mounted.shell("head -c 20M /dev/urandom >before && sync before");
    bucket.set(Weather { is_down: true, ..Weather::default() });
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
    thread::sleep(Duration::from_secs(6 * effort().min(10)));
    for program in &mut programs {
        assert!(program.try_wait().unwrap().is_none(), "it has not waited for the server");
    }
    let peak_mib = mounted.peak_kib() >> 10;
    bucket.set(Weather::default());
    for mut program in programs {
        assert!(program.wait().unwrap().success());
    }
    assert!(peak_mib < 600, "{peak_mib} MiB");
    assert_eq!(mounted.shell("ls small.* | wc -l"), "300\n");
    mounted.unmount();
    let log = fs::read_to_string(mounted.log()).unwrap();
    assert!(log.contains("trying again for"), "{log}");
    succeed(bucket.larder().args(["check", "--check-data-csum", &bucket.url("pantry")]));
}

/// What a writer does is seen, however far away the server is. While it is down, what was seen stays.
#[test]
fn a_reader_follows_a_writer_through_an_outage() {
    let bucket = Bucket::in_memory();
    bucket.set(FAR_AWAY);
    let mut writer = mounted(&bucket, "pantry");
    let sync = |mounted: &Mounted| {
        succeed(bucket.larder().args(["filesystem", "sync"]).arg(mounted.path()));
    };
    writer.shell("head -c 2M /dev/urandom >random && seq 1000 >numbers");
    sync(&writer);
    let mut reader = Mounted::at(bucket.url("pantry"), bucket.environment());
    reader.serve(&["-o", "ro,follow=1"]);
    reader.shell("cat numbers random >/dev/null");
    for round in 0..3 {
        writer.shell(&format!("seq {round} 2000 >numbers && mkdir {round}"));
        sync(&writer);
        wait_until("it is seen", || reader.path().join(round.to_string()).exists());
        // The kernel forgets its pages right after names of the new state can be seen.
        wait_until("it is read", || reader.shell("head -1 numbers") == format!("{round}\n"));
    }
    bucket.set(Weather { is_down: true, ..Weather::default() });
    let health = || succeed(bucket.larder().arg("health").arg(reader.path()));
    wait_until("the health says it", || health().contains("waits"));
    assert_eq!(reader.shell("head -1 numbers && ls -d 2"), "2\n2\n");
    bucket.set(Weather::default());
    writer.shell("mkdir last");
    sync(&writer);
    wait_until("it is seen again", || reader.path().join("last").exists());
    wait_until("it is well", || health().contains("well"));
    reader.unmount();
    writer.unmount();
}

/// The server itself stands still, with its connections open.
#[test]
fn a_server_that_stands_still_is_waited_for() {
    let bucket = Bucket::in_memory();
    let mut mounted = mounted(&bucket, "pantry");
    bucket.signal(Signal::STOP);
    let mut waiting = Command::new("bash")
        .args(["-c", "echo waited >waited && sync waited"])
        .current_dir(mounted.path())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_secs(3));
    assert!(waiting.try_wait().unwrap().is_none(), "sync has not waited for the server");
    bucket.signal(Signal::CONT);
    assert!(waiting.wait().unwrap().success());
    assert_eq!(mounted.shell("cat waited"), "waited\n");
    mounted.unmount();
}

/// A command waits as long as the user says, once, and not for each sector that it wants.
#[test]
fn a_server_that_is_gone_is_waited_for_once() {
    let bucket = Bucket::in_memory();
    let mut mounted = mounted(&bucket, "pantry");
    mounted.shell("head -c 30M /dev/urandom >random");
    mounted.unmount();
    bucket.set(Weather { delay: Duration::from_millis(300), ..Weather::default() });
    let before = bucket.requests();
    let mut cat = bucket.larder();
    cat.args(["cat", &format!("{}:/random", bucket.url("pantry"))]).env("LARDER_PATIENCE", "5s");
    // All of it comes from the server.
    cat.env("LARDER_CACHE_SIZE", "0");
    let cat = cat.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it reads", || bucket.requests() > before + 2);
    bucket.set(Weather { is_down: true, ..Weather::default() });
    let output = cat.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("ERROR: "), "{said}");
    assert_eq!(said.matches("trying again for").count(), 1, "{said}");
}

/// A server that refuses changes until somebody mends it: the mount says so, waits, and loses
/// nothing. `meanwhile` gets the mount while it waits.
fn assert_waits(refusal: &'static str, said: &str, meanwhile: impl FnOnce(&Mounted)) {
    let bucket = Bucket::in_memory();
    let url = bucket.url("pantry");
    let mut mounted = mounted(&bucket, "pantry");
    write_and_sync(&mounted.join("before"), b"before").unwrap();
    bucket.set(Weather { refusal: Some(refusal), ..Weather::default() });
    let path = mounted.join("during");
    let writer = thread::spawn(move || write_and_sync(&path, b"during"));
    let health = || {
        let output = bucket.larder().arg("health").arg(mounted.path()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    wait_until("health has it", || health().contains("waits"));
    let told = health();
    assert!(told.contains(said) && told.contains("s3://photos/pantry"), "{told}");
    let json = succeed(bucket.larder().args(["--format", "json", "health"]).arg(mounted.path()));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json["health"]["waits"].as_str().unwrap().contains(said), "{json}");
    let metric = |json: &Value, name: &str| json["health"]["metrics"][name].as_f64().unwrap();
    assert!(metric(&json, "larder_objects_undurable_seconds") > 0.0, "{json}");
    assert_eq!(json["health"]["metrics"]["larder_waits"], 1.0, "{json}");
    assert!(metric(&json, "larder_objects_outages_total") >= 1.0, "{json}");
    meanwhile(&mounted);
    assert!(!writer.is_finished());
    bucket.set(Weather::default());
    writer.join().unwrap().unwrap();
    assert!(health().contains("well"), "{}", health());
    let log = fs::read_to_string(mounted.log()).unwrap();
    assert!(log.contains(said) && !log.contains("secret"), "{log}");
    write_and_sync(&mounted.join("after"), b"after").unwrap();
    mounted.unmount();
    succeed(bucket.larder().args(["check", &url]));
    mounted.serve(&[]);
    assert_eq!(
        mounted.shell("ls && cat before during after"),
        "after\nbefore\nduring\nbeforeduringafter"
    );
    mounted.unmount();
}

#[test]
fn keys_that_become_wrong_are_waited_for() {
    assert_waits("403 Forbidden", "access is denied", |_| ());
}

#[test]
fn a_refusal_of_another_kind_is_waited_for() {
    assert_waits("418 Teapot", "status 418", |_| ());
}

/// What is there has nothing of what was written.
#[test]
fn a_request_that_is_led_elsewhere_is_not_done() {
    let refusal = "303 See Other\r\nLocation: /photos/pantry/manifest";
    assert_waits(refusal, "/photos/pantry/manifest: correct the endpoint", |_| ());
}

#[test]
fn a_full_bucket_is_a_full_file_system_until_it_has_room() {
    assert_waits("507 Insufficient Storage", "507", |mounted| {
        let error = fs::write(mounted.join("more"), vec![7; 1 << 20]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(28), "{error}");
        fs::remove_file(mounted.join("more")).unwrap();
    });
}

/// The user wants no program to wait for long.
#[test]
fn a_mount_without_patience_becomes_read_only() {
    let bucket = Bucket::in_memory();
    let url = bucket.url("pantry");
    let mut environment = bucket.environment();
    environment.push(("LARDER_PATIENCE", "1s".to_owned()));
    let mut mounted = Mounted::at(url.clone(), environment);
    mounted.serve(&["--create", "16G"]);
    write_and_sync(&mounted.join("kept"), b"kept").unwrap();
    bucket.set(Weather { refusal: Some("403 Forbidden"), ..Weather::default() });
    let error = write_and_sync(&mounted.join("lost"), b"lost").unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(5 | 30)), "{error}");
    let error = File::create(mounted.join("later")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(30), "{error}");
    assert_eq!(mounted.shell("cat kept"), "kept");
    let _ = bucket.larder().arg("umount").arg(mounted.path()).output();
    mounted.kill();
    bucket.set(Weather::default());
    succeed(bucket.larder().args(["check", &url]));
    mounted.serve(&[]);
    assert_eq!(mounted.shell("ls && cat kept"), "kept\nkept");
    mounted.unmount();
}

/// `larder umount` tells of an outage and comes to an end; the server goes on, and loses nothing.
#[test]
fn umount_in_an_outage_ends_and_loses_nothing() {
    let bucket = Bucket::in_memory();
    let mut mounted = mounted(&bucket, "pantry");
    bucket.set(Weather { refusal: Some("503 Service Unavailable"), ..Weather::default() });
    fs::write(mounted.join("bread"), "bread").unwrap();
    let output = bucket.larder().arg("umount").arg(mounted.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("pantry: the last commit waits, and loses nothing"), "{said}");
    assert!(said.contains("503") && said.contains("The server goes on"), "{said}");
    bucket.set(Weather::default());
    mounted.wait();
    mounted.serve(&[]);
    assert_eq!(mounted.shell("cat bread"), "bread");
    mounted.unmount();
}

/// With a journal it need not wait: what the store lacks follows with the next mount.
#[test]
fn umount_in_an_outage_leaves_the_rest_to_the_journal() {
    let bucket = Bucket::in_memory();
    let mut mounted = mounted(&bucket, "pantry");
    mounted.unmount();
    let journal =
        format!("journal={},journal-size=64M", mounted.folder().join("journal").display());
    let options = ["-o", journal.as_str()];
    mounted.serve(&options);
    bucket.set(Weather { refusal: Some("503 Service Unavailable"), ..Weather::default() });
    fs::write(mounted.join("bread"), "bread").unwrap();
    succeed(bucket.larder().arg("umount").arg(mounted.path()));
    mounted.wait();
    let log = fs::read_to_string(mounted.log()).unwrap();
    assert!(log.contains("bytes that the store may lack; mount it again on this machine"), "{log}");
    bucket.set(Weather::default());
    mounted.serve(&options);
    assert_eq!(mounted.shell("cat bread"), "bread");
    mounted.unmount();
}

/// Space comes back at once, through the server, and the mount goes on.
#[test]
fn gc_of_a_mount_is_done_by_its_server() {
    let bucket = Bucket::in_memory();
    let url = bucket.url("pantry");
    let mut mounted = mounted(&bucket, "pantry");
    mounted.unmount();
    let gc = || succeed(bucket.larder().args(["--format", "json", "objects", "gc", &url]));
    let nothing = ["objects", "gc", "--keep", "", "--delete-after", "0", &url];
    succeed(bucket.larder().args(nothing));
    mounted.serve(&[]);
    let segments = || {
        let info = succeed(bucket.larder().args(["--format", "json", "objects", "info", &url]));
        let info: Value = serde_json::from_str(&info).unwrap();
        info["objects-info"]["segments-size"].as_u64().unwrap_or_else(|| panic!("{info}"))
    };
    mounted.shell("head -c 20M /dev/urandom >large && sync large");
    succeed(bucket.larder().args(["filesystem", "sync"]).arg(mounted.path()));
    let full = segments();
    mounted.shell("rm large && echo bread >bread");
    succeed(bucket.larder().args(["filesystem", "sync"]).arg(mounted.path()));
    gc();
    gc();
    assert!(segments() + (16 << 20) < full, "{} {full}", segments());
    write_and_sync(&mounted.join("butter"), b"butter").unwrap();
    // What is not for the server is refused while it writes.
    let refused = bucket.larder().args(nothing).output().unwrap();
    assert!(!refused.status.success());
    assert_eq!(mounted.shell("cat bread butter"), "bread\nbutter");
    mounted.unmount();
}

/// Keys in a file expire while they are used: the next attempt has those that the file has by then.
#[test]
fn credentials_are_read_again_when_a_server_refuses_them() {
    let mounted = Mounted::on_objects();
    let folder = mounted.folder();
    let file = folder.join("credentials");
    let keys = |key: &str| {
        let text = format!("[default]\naws_access_key_id={key}\naws_secret_access_key=secret\n");
        fs::write(folder.join("credentials"), text).unwrap();
    };
    keys("EXPIRED");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let mut info = crate::support::larder();
    info.args(["objects", "info", "s3://photos/pantry"]).env("AWS_ENDPOINT", endpoint);
    info.env("AWS_SHARED_CREDENTIALS_FILE", file).env("AWS_REGION", "us-east-1");
    info.env("AWS_ALLOW_HTTP", "true").env_remove("AWS_ACCESS_KEY_ID");
    let mut info = info.stderr(Stdio::piped()).spawn().unwrap();
    let mut seen: Vec<bool> = Vec::new();
    listener.set_nonblocking(true).unwrap();
    while info.try_wait().unwrap().is_none() {
        let Ok((mut connection, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        connection.set_nonblocking(false).unwrap();
        let mut head = String::new();
        let mut lines = BufReader::new(connection.try_clone().unwrap()).lines();
        while let Some(line) = lines.next().transpose().unwrap().filter(|line| !line.is_empty()) {
            head.push_str(&line);
        }
        let is_expired = head.contains("Credential=EXPIRED/");
        keys("FRESH");
        let (status, body) = match head.contains("list-type=2") {
            _ if is_expired => ("403 Forbidden", ""),
            true => ("200 OK", EMPTY_LIST),
            false => ("404 Not Found", ""),
        };
        let length = body.len();
        let reply = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        connection.write_all(reply.as_bytes()).unwrap();
        seen.push(is_expired);
    }
    let output = info.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("there is no file system here"), "{said}");
    // It asks for keys of encryption, for a manifest, and for copies of one.
    assert_eq!(seen, [true, false, false, false]);
}

/// A server with a certificate of an authority that only the user knows.
#[test]
fn authorities_that_the_user_names_are_trusted() {
    let mounted = Mounted::on_objects();
    let folder = mounted.folder();
    crate::support::shell(
        folder,
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 30 -subj /CN=ca
         openssl req -newkey rsa:2048 -nodes -keyout s.key -out s.csr -subj /CN=localhost
         echo subjectAltName=DNS:localhost >e
         openssl x509 -req -in s.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out s.crt -days 30 \
             -extfile e",
    );
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut server = Command::new("openssl")
        .args(["s_server", "-cert", "s.crt", "-key", "s.key", "-www", "-accept", &port])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let address = format!("127.0.0.1:{port}");
    wait_until("the server listens", || TcpStream::connect(&address).is_ok());
    let said = |variable: Option<&str>| {
        let mut info = crate::support::larder();
        info.args(["objects", "info", &format!("https://localhost:{port}/pantry")]);
        info.env("LARDER_PATIENCE", "1s").env_remove("AWS_CA_BUNDLE").env_remove("SSL_CERT_FILE");
        info.envs(variable.map(|name| (name, folder.join("ca.crt"))));
        String::from_utf8_lossy(&info.output().unwrap().stderr).into_owned()
    };
    assert!(said(None).contains("certificate"), "{}", said(None));
    for variable in ["AWS_CA_BUNDLE", "SSL_CERT_FILE"] {
        let said = said(Some(variable));
        assert!(!said.contains("certificate"), "{variable}: {said}");
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Streams are sent and received in bad weather, and a sender that Ctrl-C ended goes on.
#[test]
fn streams_survive_bad_weather_and_interruptions() {
    let bucket = Bucket::in_memory();
    let url = bucket.url("backups");
    let mut sender = Mounted::new();
    sender.shell("head -c 60M /dev/urandom >random && seq 100000 >numbers");
    let files = sent(&sender.path());
    succeed(
        bucket
            .larder()
            .args(["subvolume", "snapshot", "-r"])
            .arg(sender.path())
            .arg(sender.join("one")),
    );
    bucket.set(Weather { delay: Duration::from_millis(100), ..FAR_AWAY });
    let send = || {
        let mut send = bucket.larder();
        send.args(["send", "--to", &url]).arg(sender.join("one"));
        send
    };
    let mut interrupted = send().stderr(Stdio::null()).spawn().unwrap();
    let before = bucket.requests();
    wait_until("parts are on their way", || bucket.requests() > before + 12);
    rustix::process::kill_process(rustix::process::Pid::from_child(&interrupted), Signal::INT)
        .unwrap();
    assert!(!interrupted.wait().unwrap().success());
    let list = |what: &str| -> Value {
        let said = succeed(bucket.larder().args(["--format", "json", "streams", "list", &url]));
        serde_json::from_str::<Value>(&said).unwrap()["streams-list"][what].clone()
    };
    assert_eq!(list("unfinished")[0]["name"], "one");
    succeed(&mut send());
    assert_eq!(list("streams")[0]["name"], "one");
    succeed(bucket.larder().args(["streams", "verify", &url]));
    let mut receiver = Mounted::new();
    succeed(bucket.larder().args(["receive", "--from", &url]).arg(receiver.path()));
    assert_same(&sent(&receiver.join("one")), &files);
    receiver.unmount();
    sender.unmount();
}
