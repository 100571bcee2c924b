//! HTTP for object storage: requests of `object_store`, carried by threads that wait.

use std::error::Error;
use std::fmt;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{AUTHORIZATION, RANGE};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use object_store::{ClientConfigKey, ClientOptions};
use ureq::Agent;
use ureq::tls::TlsConfig;

use super::Problem;
use super::refusal::Refusal;
use super::roots::trusted;

/// How long a request may stand still. It is repeated then.
const STANDSTILL: Duration = Duration::from_secs(30);

/// In that time a body makes such progress at least, in bytes. A slower one stands still as well.
const LEAST_PROGRESS: u64 = 16 << 10;

/// Memory for a reply up to this length is there before it comes.
const LIKELY_REPLY: u64 = 16 << 20;

/// The longest reply to a request for a whole object, or for a list.
const LONGEST_REPLY: u64 = 256 << 20;

/// The longest reply to a request that changes something.
const LONGEST_ANSWER: u64 = 1 << 20;

/// So much is read of a reply that refuses a request.
const LONGEST_REFUSAL: u64 = 64 << 10;

/// Requests without keys are led elsewhere so often at most.
const MOST_REDIRECTS: u32 = 5;

#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let roots = trusted()
            .map_err(|why| object_store::Error::Generic { store: "TLS", source: why.into() })?;
        let allows_http = options.get_config_value(&ClientConfigKey::AllowHttp);
        let config = Agent::config_builder()
            .https_only(allows_http.as_deref() != Some("true"))
            .http_status_as_error(false)
            .timeout_connect(Some(STANDSTILL))
            .timeout_per_read(Some(STANDSTILL))
            .timeout_per_write(Some(STANDSTILL))
            .timeout_recv_response(Some(2 * STANDSTILL))
            .tls_config(TlsConfig::builder().root_certs(roots).build())
            .max_idle_connections(32)
            .max_idle_connections_per_host(32)
            .user_agent(concat!("larder/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(HttpClient::new(Client(config.into())))
    }
}

#[derive(Debug)]
struct Client(Agent);

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let content: Bytes = match body.as_bytes() {
            Some(bytes) => bytes.clone(),
            None => collect(body).await?,
        };
        let range_bytes = range_bytes(&parts);
        let is_deletion = parts.method == Method::POST && parts.uri.query() == Some("delete");
        let is_reading = [Method::GET, Method::HEAD].contains(&parts.method);
        // Elsewhere keys are wrong, and a request that changes something is another one.
        let is_led = is_reading && !parts.headers.contains_key(AUTHORIZATION);
        let request = http::Request::from_parts(parts, &content[..]);
        let progress = 1 + (content.len() as u64 / LEAST_PROGRESS) as u32;
        let request = self.0.configure_request(request);
        let request = request
            .max_redirects(if is_led { MOST_REDIRECTS } else { 0 })
            .timeout_send_body(Some(STANDSTILL * progress))
            .build();
        let reply = self.0.run(request).map_err(failed)?;
        let (parts, mut body) = reply.into_parts();
        let status = parts.status.as_u16();
        if Refusal::is_one(status) {
            let content = read(&mut body, LONGEST_REFUSAL, Longer::IsCut).unwrap_or_default();
            let refusal = Refusal::new(status, &parts.headers, &content);
            return Err(HttpError::new(HttpErrorKind::Unknown, refusal));
        }
        let has_content = [StatusCode::OK, StatusCode::PARTIAL_CONTENT].contains(&parts.status);
        if is_reading && parts.status.is_success() && !has_content {
            let what = format!("status {status} is no answer to a request for content");
            return Err(interrupted(io::Error::other(what)));
        }
        let longest = match range_bytes {
            // Nobody reads the body of a whole object in place of a part.
            Some(_) if parts.status != StatusCode::PARTIAL_CONTENT => None,
            Some(bytes) => Some(bytes),
            None if is_reading => Some(LONGEST_REPLY),
            None => Some(LONGEST_ANSWER),
        };
        let content = match longest {
            Some(bytes) => read(&mut body, bytes, Longer::IsWrong).map_err(interrupted)?,
            None => Vec::new(),
        };
        if is_deletion && let Some(refusal) = Refusal::of_deletion(status, &content) {
            return Err(HttpError::new(HttpErrorKind::Unknown, refusal));
        }
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(content)))
    }
}

/// How many bytes a request asks for, if it asks for a part.
fn range_bytes(parts: &http::request::Parts) -> Option<u64> {
    let text = parts.headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?;
    let (first, last) = text.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    last.checked_sub(first)?.checked_add(1)
}

/// What a reply is that goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Longer {
    IsCut,
    IsWrong,
}

/// Reads a reply of at most `longest` bytes into memory of the length that the server has told.
fn read(body: &mut ureq::Body, longest: u64, longer: Longer) -> io::Result<Vec<u8>> {
    let expected = body.content_length().unwrap_or(0).min(LIKELY_REPLY).min(longest);
    let mut content = Vec::with_capacity(expected as usize);
    // One more byte shows that it goes on.
    let mut reader = body.with_config().limit(u64::MAX).reader().take(longest + 1);
    let mut seen = (Instant::now(), 0);
    while reader.by_ref().take(LEAST_PROGRESS).read_to_end(&mut content)? > 0 {
        let len = content.len() as u64;
        if seen.0.elapsed() > STANDSTILL {
            if len - seen.1 < LEAST_PROGRESS {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the reply stands still"));
            }
            seen = (Instant::now(), len);
        }
    }
    if content.len() as u64 > longest {
        if longer == Longer::IsWrong {
            return Err(io::Error::other("the reply is longer than what was asked for"));
        }
        content.truncate(longest as usize);
    }
    Ok(content)
}

fn interrupted(error: io::Error) -> HttpError {
    HttpError::new(HttpErrorKind::Interrupted, error)
}

async fn collect(body: HttpRequestBody) -> Result<Bytes, HttpError> {
    let collected = body.collect().await;
    let failed = |error| HttpError::new(HttpErrorKind::Unknown, error);
    Ok(collected.map_err(failed)?.to_bytes())
}

fn failed(error: ureq::Error) -> HttpError {
    let kind = match &error {
        ureq::Error::Timeout(_) => HttpErrorKind::Timeout,
        ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed
        | ureq::Error::Rustls(_)
        | ureq::Error::Tls(_) => HttpErrorKind::Connect,
        ureq::Error::Io(_) => HttpErrorKind::Interrupted,
        ureq::Error::Protocol(_) => HttpErrorKind::Request,
        _ => HttpErrorKind::Unknown,
    };
    HttpError::new(kind, Failed(error))
}

/// An error of the client, which tells of the system's error that is behind it.
#[derive(Debug)]
struct Failed(ureq::Error);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Failed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            ureq::Error::Io(error) => Some(error),
            other => other.source(),
        }
    }
}

/// What went wrong with a request.
pub(super) fn problem_of(error: &object_store::Error) -> Problem {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(refusal) = error.downcast_ref::<Refusal>() {
            return refusal.problem();
        }
        next = error.source();
    }
    use object_store::Error as E;
    match error {
        E::NotFound { .. } => Problem::NotFound,
        E::AlreadyExists { .. } | E::Precondition { .. } => Problem::Condition,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => Problem::Denied,
        E::NotSupported { .. } | E::NotImplemented { .. } => Problem::Unsupported,
        _ if is_of_the_network(error) => Problem::Temporary,
        _ => Problem::Other,
    }
}

fn is_of_the_network(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<HttpError>() {
            return error.kind() != HttpErrorKind::Unknown;
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.kind() != io::ErrorKind::InvalidData;
        }
        next = error.source();
    }
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::store::StoreError;

    const ECONNREFUSED: i32 = 111;

    #[test]
    fn a_refused_connection_is_told_in_words() {
        let refused = failed(ureq::Error::Io(io::Error::from_raw_os_error(ECONNREFUSED)));
        let error = StoreError::new(Problem::Temporary, "s3://bread", "butter", refused);
        assert_eq!(error.to_string(), "s3://bread/butter: HTTP error: io: Connection refused");
    }
}
