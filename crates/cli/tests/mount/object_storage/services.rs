//! What a bucket of S3 is told besides content: storage classes, encryption by the server, and who
//! asks.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use super::server::Bucket;
use crate::support::{Mounted, larder, succeed};

/// The reply to a request of somebody whom the server trusts.
fn reply(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = format!("{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// The storage classes of the objects whose names begin with `prefix`.
fn classes(bucket: &Bucket, prefix: &str) -> Vec<String> {
    let listed = reply(bucket.port(), &format!("GET /photos?list-type=2&prefix={prefix}"));
    let classes = listed.split("<StorageClass>").skip(1);
    classes.map(|rest| rest.split_once('<').unwrap().0.to_owned()).collect()
}

#[test]
fn content_gets_the_storage_class() {
    let bucket = Bucket::in_memory();
    let mut environment = bucket.environment();
    environment.push(("LARDER_STORAGE_CLASS", "STANDARD_IA".to_owned()));
    let mut mounted = Mounted::at(bucket.url("pantry"), environment.clone());
    mounted.mount(&["--create", "1G"]);
    mounted.shell("head -c 3M /dev/urandom >random && sync random");
    mounted.unmount();
    let segments = classes(&bucket, "pantry/segments/");
    assert!(!segments.is_empty() && segments.iter().all(|it| it == "STANDARD_IA"), "{segments:?}");
    for prefix in ["pantry/manifest", "pantry/maps/"] {
        let others = classes(&bucket, prefix);
        assert!(!others.is_empty() && others.iter().all(|it| it == "STANDARD"), "{others:?}");
    }
    environment.push(("LARDER_STORAGE_CLASS", "DEEP_ARCHIVE".to_owned()));
    let output = larder().args(["ls", &bucket.url("pantry")]).envs(environment).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("LARDER_STORAGE_CLASS: 'DEEP_ARCHIVE' gives"), "{said}");
}

/// A server without anything, which takes no writes. Returns the head of the first that it gets.
fn first_write(listener: &TcpListener) -> String {
    loop {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = vec![0; 1 << 16];
        let mut head = String::new();
        while !head.contains("\r\n\r\n") {
            let len = stream.read(&mut bytes).unwrap();
            head.push_str(&String::from_utf8_lossy(&bytes[..len]));
        }
        let is_write = head.starts_with("PUT ");
        let status = if is_write { "501 Not Implemented" } else { "404 Not Found" };
        let reply = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        stream.write_all(reply.as_bytes()).unwrap();
        if is_write {
            return head.to_lowercase();
        }
    }
}

#[test]
fn the_server_is_asked_to_encrypt() {
    let folder = larder_testkit::Scratch::new();
    let image = folder.path().join("disk.img");
    fs::write(&image, vec![1; 4096]).unwrap();
    for (variables, expected) in [
        (
            &[("AWS_SERVER_SIDE_ENCRYPTION", "aws:kms"), ("AWS_SSE_KMS_KEY_ID", "the-key")][..],
            &["encryption: aws:kms", "encryption-aws-kms-key-id: the-key"][..],
        ),
        (&[("AWS_SERVER_SIDE_ENCRYPTION", "AES256")], &["x-amz-server-side-encryption: aes256"]),
        (
            &[
                ("AWS_SERVER_SIDE_ENCRYPTION", "sse-c"),
                ("AWS_SSE_CUSTOMER_KEY_BASE64", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="),
            ],
            &["encryption-customer-algorithm: aes256", "customer-key: mdeyMzQ1"],
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let mut command = larder();
        command.arg("import").arg(&image).arg("s3://photos/pantry");
        command.env("AWS_ENDPOINT", endpoint).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_ACCESS_KEY_ID", "ID").env("AWS_SECRET_ACCESS_KEY", "S");
        command.envs(variables.iter().copied()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let head = first_write(&listener);
        for part in expected {
            assert!(head.contains(&part.to_lowercase()), "{part}: {head}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// The program, whose credentials come from a profile in the files in `home`.
fn by_profile(bucket: &Bucket, home: &Path, profile: &str) -> Command {
    let mut larder = larder();
    let environment = bucket.environment();
    let stays = |name: &str| !name.starts_with("AWS_") || name == "AWS_ALLOW_HTTP";
    let port = bucket.port();
    larder.envs(environment.into_iter().filter(|(name, _)| stays(name)));
    larder.env("HOME", home).env("AWS_PROFILE", profile);
    larder.env("AWS_ENDPOINT_URL_STS", format!("http://127.0.0.1:{port}"));
    larder
}

#[test]
fn profiles_say_who_asks() {
    let bucket = Bucket::in_memory();
    let url = bucket.url("pantry");
    let mut mounted = Mounted::at(url.clone(), bucket.environment());
    mounted.mount(&["--create", "1G"]);
    mounted.shell("echo bread >bread");
    mounted.unmount();
    let home = mounted.folder().join("home");
    fs::create_dir_all(home.join(".aws")).unwrap();
    let endpoint =
        format!("endpoint_url = http://127.0.0.1:{}\nregion = us-east-1\n", bucket.port());
    let keys = r#"{"Version": 1, "AccessKeyId": "ID", "SecretAccessKey": "S"}"#;
    let config = format!(
        "[profile keys]\n{endpoint}aws_access_key_id = ID\naws_secret_access_key = S\n
         [profile process]\n{endpoint}credential_process = echo '{keys}'\n
         [profile role]\n{endpoint}role_arn = arn:aws:iam::123456789012:role/reader
         [profile circle]\n{endpoint}role_arn = arn:circle\nsource_profile = circle2
         [profile circle2]\nrole_arn = arn:circle\nsource_profile = circle\n"
    );
    let config = config
        .replace("         [", "[")
        .replace("role/reader\n", "role/reader\nsource_profile = process\n");
    fs::write(home.join(".aws/config"), config).unwrap();
    for profile in ["keys", "process", "role"] {
        let listed = succeed(by_profile(&bucket, &home, profile).args(["ls", &url]));
        assert_eq!(listed, "bread\n", "{profile}");
    }
    for (profile, why) in [("nobody", "no profile is called nobody"), ("circle", "on itself")] {
        let output = by_profile(&bucket, &home, profile).args(["ls", &url]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
}
