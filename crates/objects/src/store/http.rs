//! HTTP for object storage: requests of `object_store`, carried by threads that wait.

use std::error::Error;
use std::io::{self, Read};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
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

/// Memory for a reply up to this length is there before it comes.
const LIKELY_REPLY: u64 = 16 << 20;

/// The longest reply. Nothing asks for a longer one.
const LONGEST_REPLY: u64 = 1 << 30;

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
        let request = http::Request::from_parts(parts, &content[..]);
        let reply = self.0.run(request).map_err(failed)?;
        let (parts, mut body) = reply.into_parts();
        let content = read(&mut body).map_err(failed)?;
        if Refusal::is_one(parts.status.as_u16()) {
            let refusal = Refusal::new(parts.status.as_u16(), &content);
            return Err(HttpError::new(HttpErrorKind::Unknown, refusal));
        }
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(content)))
    }
}

/// Reads a reply into memory of the length that the server has told.
fn read(body: &mut ureq::Body) -> Result<Vec<u8>, ureq::Error> {
    let expected = body.content_length().unwrap_or(0).min(LIKELY_REPLY);
    let mut content = Vec::with_capacity(expected as usize);
    body.with_config().limit(LONGEST_REPLY).reader().read_to_end(&mut content)?;
    Ok(content)
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
    HttpError::new(kind, error)
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
