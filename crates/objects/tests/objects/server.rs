//! A server in this process that speaks as much of S3 as devices need, and misbehaves as servers and
//! networks do.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;

use bytes::Bytes;
use jiff::Timestamp;
use larder_objects::{Problem, Remote, Store, StoreError, Version};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The folder of the device; others lie beside it.
pub(crate) const MAIN: &str = "main";

/// So many objects are in each reply to a request for a list.
const PAGE: usize = 7;

/// What a server does with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Honest,
    /// It answers with this status, after it has done what it was asked for, or not.
    Status {
        status: u16,
        does_it: bool,
    },
    /// The connection ends in the middle of the reply, or before it.
    Half,
    Nothing,
}

/// Chooses what becomes of the next request.
pub(crate) type Choice = Box<dyn FnMut() -> Act + Send>;

struct Bucket {
    store: Arc<dyn Store>,
    choose: Mutex<Choice>,
    rng: Mutex<StdRng>,
}

struct Server {
    port: u16,
    buckets: Mutex<HashMap<String, Arc<Bucket>>>,
    made: AtomicU64,
}

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that went away, or a bucket that nobody knows any more, ends it.
            thread::spawn(move || drop(serve(&stream.unwrap())));
        }
    });
    Server { port, buckets: Mutex::default(), made: AtomicU64::new(0) }
});

/// A store that the server offers, as long as this is there.
pub(crate) struct Served(String);

impl Served {
    /// Offers `store`. Before each request, `choose` tells what becomes of it.
    pub(crate) fn new(store: Arc<dyn Store>, seed: u64, choose: Choice) -> Self {
        let name = format!("bucket{}", SERVER.made.fetch_add(1, Ordering::Relaxed));
        let rng = Mutex::new(StdRng::seed_from_u64(seed));
        let bucket = Bucket { store, choose: Mutex::new(choose), rng };
        SERVER.buckets.lock().insert(name.clone(), Arc::new(bucket));
        Self(name)
    }

    /// What a client sees of it, below a folder.
    pub(crate) fn at(&self, place: &str) -> Remote {
        let url = format!("s3://{}/{place}", self.0);
        let endpoint = format!("http://127.0.0.1:{}", SERVER.port);
        Remote::at_endpoint(&url.parse().unwrap(), &endpoint).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        SERVER.buckets.lock().remove(&self.0);
    }
}

/// What a server that misbehaves now and then does with a request.
pub(crate) fn troubled(seed: u64, trouble: f64) -> Choice {
    let mut rng = StdRng::seed_from_u64(seed);
    Box::new(move || {
        if !rng.random_bool(trouble / 2.0) {
            return Act::Honest;
        }
        match rng.random_range(0..4) {
            0 => Act::Half,
            1 => Act::Nothing,
            _ => {
                let status = STATUSES[rng.random_range(0..STATUSES.len())];
                Act::Status { status, does_it: rng.random_bool(0.5) }
            }
        }
    })
}

/// All statuses that servers, and what stands before them, are known to answer with.
pub(crate) const STATUSES: [u16; 41] = [
    201, 202, 204, 205, 207, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 405, 406,
    407, 408, 409, 410, 411, 412, 413, 416, 418, 421, 423, 425, 429, 451, 500, 501, 502, 503, 504,
    507, 520, 524,
];

struct Request {
    method: String,
    bucket: String,
    key: String,
    query: HashMap<String, String>,
    headers: HashMap<String, String>,
    body: Bytes,
}

struct Reply {
    status: u16,
    headers: String,
    body: Bytes,
}

fn reply(status: u16, headers: String, body: impl Into<Bytes>) -> Reply {
    Reply { status, headers, body: body.into() }
}

fn serve(stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut from = BufReader::new(stream.try_clone()?);
    loop {
        let request = receive(&mut from)?;
        let Some(bucket) = SERVER.buckets.lock().get(&request.bucket).map(Arc::clone) else {
            return Ok(());
        };
        let act = (bucket.choose.lock())();
        let is_head = request.method == "HEAD";
        let done = match act {
            Act::Status { does_it: false, .. } => Ok(reply(200, String::new(), "")),
            _ => answer(&*bucket.store, &request),
        };
        let refused = |error: &StoreError| refusal(error.problem, &mut bucket.rng.lock());
        let reply = match (act, done) {
            (Act::Nothing, _) => return Ok(()),
            (Act::Status { status, .. }, _) => {
                let location = if (300..400).contains(&status) { "Location: /\r\n" } else { "" };
                reply(status, location.to_owned(), "")
            }
            (_, Ok(reply)) => reply,
            (_, Err(error)) => match refused(&error) {
                Some(reply) => reply,
                None => return Ok(()),
            },
        };
        let mut bytes = format!(
            "HTTP/1.1 {} x\r\nContent-Length: {}\r\n{}\r\n",
            reply.status,
            reply.body.len(),
            reply.headers
        )
        .into_bytes();
        if !is_head {
            bytes.extend_from_slice(&reply.body);
        }
        let is_half = act == Act::Half;
        let sent = if is_half { bytes.len() - reply.body.len().div_ceil(2) } else { bytes.len() };
        (&*stream).write_all(&bytes[..sent])?;
        if is_half {
            return Ok(());
        }
    }
}

fn receive(from: &mut BufReader<TcpStream>) -> std::io::Result<Request> {
    let mut line = || {
        let mut line = String::new();
        match from.read_line(&mut line)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok::<_, std::io::Error>(line.trim_end().to_owned()),
        }
    };
    let first = line()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
    let mut headers = HashMap::new();
    loop {
        let header = line()?;
        let Some((name, value)) = header.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let len = headers.get("content-length").map_or(0, |len| len.parse().unwrap());
    let mut body = vec![0; len];
    from.read_exact(&mut body)?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let (bucket, key) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    let query = query.split('&').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        Some((name.to_owned(), decoded(value)))
    });
    Ok(Request {
        method,
        bucket: bucket.to_owned(),
        key: decoded(key),
        query: query.collect(),
        headers,
        body: body.into(),
    })
}

fn decoded(text: &str) -> String {
    let mut parts = text.split('%');
    let mut found = parts.next().unwrap().as_bytes().to_vec();
    for part in parts {
        found.push(u8::from_str_radix(&part[..2], 16).unwrap());
        found.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(found).unwrap()
}

/// The store's name of what a client calls `key`.
fn name_of(key: &str) -> String {
    match key.strip_prefix(MAIN).and_then(|rest| rest.strip_prefix('/')) {
        Some(name) => name.to_owned(),
        None => format!("../{key}"),
    }
}

fn answer(store: &dyn Store, request: &Request) -> Result<Reply, StoreError> {
    let name = name_of(&request.key);
    let tag = |version: &Version| format!("ETag: \"{}\"\r\n", version.0);
    let none = Version(String::new());
    match request.method.as_str() {
        "GET" if request.key.is_empty() => list(store, &request.query),
        "GET" | "HEAD" => {
            let found = store.get_versioned(&name)?;
            let time = Timestamp::from_second(found.modified as i64).unwrap();
            let time = time.strftime("%a, %d %b %Y %H:%M:%S GMT");
            let headers = format!("{}Last-Modified: {time}\r\n", tag(&found.version));
            let len = found.content.len();
            let Some((first, last)) = request.headers.get("range").map(|text| range(text)) else {
                return Ok(reply(200, headers, found.content));
            };
            if first >= len {
                return Ok(reply(416, headers, ""));
            }
            let end = len.min(last + 1);
            let headers = format!("{headers}Content-Range: bytes {first}-{}/{len}\r\n", end - 1);
            Ok(reply(206, headers, found.content.slice(first..end)))
        }
        "PUT" => {
            let content = request.body.clone();
            let version = match request.headers.get("if-match") {
                Some(version) => {
                    let version = Version(version.trim_matches('"').to_owned());
                    store.try_replace(&name, content, &version)?
                }
                None => {
                    assert_eq!(request.headers["if-none-match"], "*");
                    store.try_create(&name, content)?;
                    none
                }
            };
            Ok(reply(200, tag(&version), ""))
        }
        "POST" => {
            // It names one object.
            let text = String::from_utf8_lossy(&request.body).into_owned();
            let key = text.split_once("<Key>").unwrap().1.split_once("</Key>").unwrap().0;
            let result = match store.delete(&name_of(key)) {
                Ok(()) => format!("<Deleted><Key>{key}</Key></Deleted>"),
                // The status is good all the same.
                Err(error) if error.problem == Problem::Denied => of_one(key, "AccessDenied"),
                Err(error) if error.problem == Problem::Temporary => of_one(key, "SlowDown"),
                Err(error) => return Err(error),
            };
            Ok(xml(format!("<DeleteResult>{result}</DeleteResult>")))
        }
        other => panic!("{other}"),
    }
}

fn of_one(key: &str, code: &str) -> String {
    format!("<Error><Key>{key}</Key><Code>{code}</Code><Message>no</Message></Error>")
}

fn xml(text: String) -> Reply {
    reply(200, "Content-Type: application/xml\r\n".to_owned(), text)
}

fn range(text: &str) -> (usize, usize) {
    let (first, last) = text.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    (first.parse().unwrap(), last.parse().unwrap())
}

fn list(store: &dyn Store, query: &HashMap<String, String>) -> Result<Reply, StoreError> {
    let prefix = &query["prefix"];
    let name = name_of(prefix);
    let folder = name.trim_end_matches('/');
    let found = store.list(folder)?;
    let mut found: Vec<_> = found
        .into_iter()
        // Prefixes end with a slash, and are no part of a name.
        .filter_map(|listed| Some((listed.name.strip_prefix(&name)?.to_owned(), listed.len_bytes)))
        .map(|(rest, len_bytes)| (format!("{prefix}{rest}"), len_bytes))
        .collect();
    found.sort_unstable();
    if let Some(after) = query.get("continuation-token") {
        found.retain(|(key, _)| key > after);
    }
    let mut text = "<ListBucketResult>".to_owned();
    let has_more = found.len() > PAGE;
    found.truncate(PAGE);
    for (key, len_bytes) in &found {
        write!(
            text,
            "<Contents><Key>{key}</Key><Size>{len_bytes}</Size><ETag>\"1\"</ETag>\
             <LastModified>2026-11-29T08:00:00.000Z</LastModified></Contents>"
        )
        .unwrap();
    }
    if has_more {
        let last = &found.last().unwrap().0;
        write!(text, "<NextContinuationToken>{last}</NextContinuationToken>").unwrap();
    }
    write!(text, "<IsTruncated>{has_more}</IsTruncated></ListBucketResult>").unwrap();
    Ok(xml(text))
}

/// How a server tells of a problem. Without a reply the connection ends.
fn refusal(problem: Problem, rng: &mut StdRng) -> Option<Reply> {
    let all: &[(u16, &str)] = match problem {
        Problem::Temporary => &[
            (0, ""),
            (0, ""),
            (400, "BadDigest"),
            (400, "IncompleteBody"),
            (400, "RequestTimeout"),
            (403, "RequestTimeTooSkewed"),
            (408, ""),
            (429, "SlowDown"),
            (500, "InternalError"),
            (503, "SlowDown"),
            (520, ""),
            (524, ""),
        ],
        Problem::Condition => &[(409, "ConditionalRequestConflict"), (412, "PreconditionFailed")],
        Problem::Denied => &[(400, "ExpiredToken"), (401, ""), (403, "AccessDenied")],
        Problem::Full => &[(403, "QuotaExceeded"), (507, "")],
        Problem::NotFound => &[(404, "NoSuchKey")],
        Problem::Unsupported => &[(405, "MethodNotAllowed"), (501, "NotImplemented")],
        _ => &[(400, "InvalidArgument"), (418, "")],
    };
    let (status, code) = all[rng.random_range(0..all.len())];
    let body = format!("<Error><Code>{code}</Code></Error>");
    (status != 0).then(|| reply(status, String::new(), body))
}
