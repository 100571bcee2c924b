//! Replies of servers that no server should give.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;

use larder_objects::{Problem, Remote, Store};

/// A store at a server that answers each request with `head`, and then with bytes for as long as
/// somebody reads them. The thread gives their number at the end of each reply.
fn endless(head: &'static str, replies: usize) -> (Remote, thread::JoinHandle<Vec<u64>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let answer = |_| {
            let (mut client, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
            client.write_all(head.as_bytes()).unwrap();
            let piece = vec![b'x'; 1 << 20];
            let mut sent = 0;
            while sent < 1 << 32 && client.write_all(&piece).is_ok() {
                sent += piece.len() as u64;
            }
            sent
        };
        (0..replies).map(answer).collect()
    });
    (Remote::new(&url.parse().unwrap()).unwrap(), server)
}

/// What a server can send before it notices that nobody reads.
const ON_ITS_WAY: u64 = 64 << 20;

#[test]
fn no_reply_is_read_that_is_longer_than_what_was_asked_for() {
    let part = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-99/100000000000\r\n\
                ETag: \"1\"\r\nLast-Modified: Sun, 29 Nov 2026 08:00:00 GMT\r\n\
                Content-Length: 100000000000\r\n\r\n";
    let (store, server) = endless(part, 1);
    let error = store.get("segments/1", 0..100).unwrap_err();
    assert_eq!(error.problem, Problem::Temporary, "{error}");
    let sent = server.join().unwrap();
    assert!(sent.iter().all(|sent| *sent < ON_ITS_WAY), "{sent:?}");
}

#[test]
fn little_is_read_of_a_refusal() {
    let refusal = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 100000000000\r\n\r\n";
    let (store, server) = endless(refusal, 1);
    let error = store.get_versioned("manifest").unwrap_err();
    assert!(error.to_string().contains("status 500") && error.to_string().len() < 2000, "{error}");
    let sent = server.join().unwrap();
    assert!(sent.iter().all(|sent| *sent < ON_ITS_WAY), "{sent:?}");
}
