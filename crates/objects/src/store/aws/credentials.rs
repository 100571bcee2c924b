//! Credentials that end, and are fetched anew before they do.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::lock::Mutex;
use jiff::Timestamp;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpClient, HttpRequest};
use object_store::{CredentialProvider, Error, Result};
use serde_json::Value;
use url::form_urlencoded;

use super::profile::SignIn;
use crate::clock;
use crate::command::output_of;

/// Credentials are fetched anew so long before their end, in seconds.
const BEFORE_END: i64 = 5 * 60;

type Provider = Arc<dyn CredentialProvider<Credential = AwsCredential>>;

/// How credentials are fetched.
#[derive(Debug)]
pub(super) enum Fetch {
    /// A command prints them.
    Process(String),
    /// The security token service gives them to those of `base`.
    Role { base: Provider, service: Service, region: String, form: String },
    /// They are for those who have signed in.
    SignIn { sign_in: SignIn, tokens: PathBuf, service: Service },
}

/// A service, by its URL.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) client: HttpClient,
    pub(super) url: String,
}

/// Credentials, and when they end, in seconds since 1970.
#[derive(Clone, Debug)]
struct Temporary {
    credential: Arc<AwsCredential>,
    end: Option<i64>,
}

/// Credentials that are fetched when somebody needs them.
#[derive(Debug)]
pub(super) struct Fetched {
    fetch: Fetch,
    known: Mutex<Option<Temporary>>,
}

impl Fetched {
    pub(super) fn by(fetch: Fetch) -> Provider {
        Arc::new(Self { fetch, known: Mutex::default() })
    }
}

#[async_trait]
impl CredentialProvider for Fetched {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> Result<Arc<AwsCredential>> {
        let mut known = self.known.lock().await;
        let left = |it: &Temporary| it.end.map_or(i64::MAX, |end| end - clock::now() as i64);
        if let Some(known) = known.as_ref().filter(|it| left(it) > BEFORE_END) {
            return Ok(Arc::clone(&known.credential));
        }
        match self.fetch.fetch().await {
            Ok(fetched) => {
                let credential = Arc::clone(&fetched.credential);
                *known = Some(fetched);
                Ok(credential)
            }
            Err(error) => match known.as_ref().filter(|it| left(it) > 0) {
                Some(known) => {
                    tracing::warn!("{error}; the credentials are still good for a while");
                    Ok(Arc::clone(&known.credential))
                }
                None => Err(error),
            },
        }
    }
}

impl Fetch {
    async fn fetch(&self) -> Result<Temporary> {
        match self {
            Self::Process(command) => {
                let failed = |why: String| refused(format!("credential_process: {why}"));
                let said = output_of(OsStr::new(command)).map_err(failed)?;
                let said: Value = serde_json::from_slice(&said)
                    .map_err(|error| failed(format!("'{command}' prints no JSON: {error}")))?;
                from_json(&said, ["AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"])
                    .ok_or_else(|| failed(format!("'{command}' prints no credentials")))
            }
            Self::Role { base, service, region, form } => {
                let base = base.get_credential().await?;
                let mut request = http::Request::post(&service.url)
                    .header("content-type", "application/x-www-form-urlencoded")
                    .body(form.clone().into())
                    .map_err(generic)?;
                let signer = AwsAuthorizer::new(&base, "sts", region);
                signer.try_authorize(&mut request, None)?;
                let reply = service.ask(request).await?;
                from_xml(&String::from_utf8_lossy(&reply))
                    .ok_or_else(|| generic(format!("{}: no credentials came", service.url)))
            }
            Self::SignIn { sign_in, tokens, service } => {
                let token = token(tokens, sign_in).ok_or_else(|| {
                    let profile = &sign_in.profile;
                    refused(format!("run 'aws sso login --profile {profile}' to sign in again"))
                })?;
                let query = form_of(&[
                    ("role_name", Some(&sign_in.role)),
                    ("account_id", Some(&sign_in.account)),
                ]);
                let request =
                    http::Request::get(format!("{}/federation/credentials?{query}", service.url))
                        .header("x-amz-sso_bearer_token", token)
                        .body(String::new().into())
                        .map_err(generic)?;
                let reply = service.ask(request).await?;
                let said: Value = serde_json::from_slice(&reply).map_err(generic)?;
                let names = ["accessKeyId", "secretAccessKey", "sessionToken", "expiration"];
                from_json(&said["roleCredentials"], names)
                    .ok_or_else(|| generic(format!("{}: no credentials came", service.url)))
            }
        }
    }
}

impl Service {
    async fn ask(&self, request: HttpRequest) -> Result<Vec<u8>> {
        let reply = self.client.execute(request).await.map_err(generic)?;
        if !reply.status().is_success() {
            return Err(generic(format!("{}: {}", self.url, reply.status())));
        }
        Ok(reply.into_body().bytes().await.map_err(generic)?.to_vec())
    }
}

/// A query or a form, of the values that there are.
pub(super) fn form_of(fields: &[(&str, Option<&str>)]) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    for (name, value) in fields {
        if let Some(value) = value {
            form.append_pair(name, value);
        }
    }
    form.finish()
}

fn from_json(said: &Value, names: [&str; 4]) -> Option<Temporary> {
    let text = |name: &str| said[name].as_str().map(str::to_owned);
    let [id, secret, token, end] = names;
    let end = match &said[end] {
        Value::Number(milliseconds) => Some(milliseconds.as_i64()? / 1000),
        Value::String(time) => Some(seconds(time)?),
        _ => None,
    };
    let credential =
        AwsCredential { key_id: text(id)?, secret_key: text(secret)?, token: text(token) };
    Some(Temporary { credential: Arc::new(credential), end })
}

fn from_xml(said: &str) -> Option<Temporary> {
    let text = |name: &str| {
        let (_, rest) = said.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0.trim().to_owned())
    };
    let credential = AwsCredential {
        key_id: text("AccessKeyId")?,
        secret_key: text("SecretAccessKey")?,
        token: Some(text("SessionToken")?),
    };
    Some(Temporary { credential: Arc::new(credential), end: Some(seconds(&text("Expiration")?)?) })
}

fn seconds(time: &str) -> Option<i64> {
    Some(time.parse::<Timestamp>().ok()?.as_second())
}

/// The token that a sign-in has left in the folder `tokens`, if it is good.
fn token(tokens: &PathBuf, sign_in: &SignIn) -> Option<String> {
    let plain = |url: &str| url.trim_end_matches(['#', '/']).to_owned();
    let files = std::fs::read_dir(tokens).ok()?.flatten();
    files
        .filter_map(|file| {
            let said: Value = serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok()?;
            let is_it = plain(said["startUrl"].as_str()?) == plain(&sign_in.start_url);
            let end = seconds(said["expiresAt"].as_str()?)?;
            let is_good = is_it && end > clock::now() as i64;
            is_good.then_some((end, said["accessToken"].as_str()?.to_owned()))
        })
        .max_by_key(|(end, _)| *end)
        .map(|(_, token)| token)
}

/// No credentials can be had, until somebody does something.
fn refused(why: String) -> Error {
    Error::Unauthenticated { path: String::new(), source: why.into() }
}

fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "credentials", source: source.into() }
}

#[cfg(all(test, unix))]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread::{self, JoinHandle};

    use futures_executor::block_on;
    use object_store::ClientOptions;
    use object_store::StaticCredentialProvider;
    use object_store::client::HttpConnector;

    use super::super::super::http::{Connector, problem_of};
    use super::*;
    use crate::store::Problem;

    /// A service that answers one request, and returns it.
    fn service(status: &str, reply: &str) -> (Service, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let length = reply.len();
        let reply =
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{reply}").into_bytes();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = String::new();
            while !is_whole(&request) {
                let mut bytes = [0; 4096];
                let len = stream.read(&mut bytes).unwrap();
                request.push_str(str::from_utf8(&bytes[..len]).unwrap());
            }
            stream.write_all(&reply).unwrap();
            request
        });
        let client = Connector.connect(&ClientOptions::new().with_allow_http(true)).unwrap();
        (Service { client, url }, server)
    }

    fn is_whole(request: &str) -> bool {
        let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().unwrap())
        });
        body.len() >= length.unwrap_or(0)
    }

    fn get(fetched: &Provider) -> Result<Arc<AwsCredential>> {
        block_on(fetched.get_credential())
    }

    #[test]
    fn a_command_is_run_again_when_its_credentials_end() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let run = |expiration: &str| {
            Fetched::by(Fetch::Process(format!(
                "echo >>{}; echo '{{\"Version\": 1, \"AccessKeyId\": \"ID\", \
                 \"SecretAccessKey\": \"SECRET\"{expiration}}}'",
                runs.display()
            )))
        };
        for (expiration, expected) in [
            ("", 1),
            (", \"Expiration\": \"2999-01-01T00:00:00Z\"", 1),
            (", \"Expiration\": \"2001-01-01T00:00:00Z\"", 3),
        ] {
            std::fs::write(&runs, "").unwrap();
            let fetched = run(expiration);
            for _ in 0..3 {
                let credential = get(&fetched).unwrap();
                assert_eq!((credential.key_id.as_str(), &credential.token), ("ID", &None));
            }
            assert_eq!(std::fs::read_to_string(&runs).unwrap().len(), expected, "{expiration}");
        }
        for (command, why) in [("exit 3", "exit status: 3"), ("echo no", "JSON"), ("echo {}", "no")]
        {
            let error = get(&Fetched::by(Fetch::Process(command.to_owned()))).unwrap_err();
            assert_eq!(problem_of(&error), Problem::Denied);
            assert!(error.to_string().contains(why), "{error}");
        }
    }

    #[test]
    fn a_role_is_taken_with_the_keys_of_another() {
        let (service, server) = service(
            "200 OK",
            "<AssumeRoleResponse><Credentials><AccessKeyId>ROLE</AccessKeyId>
             <SecretAccessKey>S</SecretAccessKey><SessionToken>T</SessionToken>
             <Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResponse>",
        );
        let base =
            AwsCredential { key_id: "ID".to_owned(), secret_key: "SECRET".to_owned(), token: None };
        let form = form_of(&[("Action", Some("AssumeRole")), ("RoleArn", Some("arn:a/b"))]);
        let base: Provider = Arc::new(StaticCredentialProvider::new(base));
        let region = "eu-1".to_owned();
        let fetched = Fetched::by(Fetch::Role { base, service, region, form });
        for _ in 0..2 {
            let credential = get(&fetched).unwrap();
            assert_eq!(credential.key_id, "ROLE");
            assert_eq!(credential.token.as_deref(), Some("T"));
        }
        let request = server.join().unwrap();
        assert!(request.contains("Action=AssumeRole&RoleArn=arn%3Aa%2Fb"), "{request}");
        assert!(request.contains("Credential=ID/") && request.contains("/eu-1/sts/"), "{request}");
        assert!(!request.contains("SECRET"), "{request}");
    }

    #[test]
    fn a_refusal_of_a_service_is_one_of_the_store() {
        let (service, server) = service("403 Forbidden", "<Code>AccessDenied</Code>");
        let sign_in = sign_in("https://us");
        let folder = tempfile::tempdir().unwrap();
        let tokens = folder.path().to_owned();
        std::fs::write(
            tokens.join("a.json"),
            "{\"startUrl\": \"https://us/#/\", \"accessToken\": \"TOKEN\", \
             \"expiresAt\": \"2999-01-01T00:00:00Z\"}",
        )
        .unwrap();
        let fetched = Fetched::by(Fetch::SignIn { sign_in, tokens, service });
        assert_eq!(problem_of(&get(&fetched).unwrap_err()), Problem::Denied);
        let request = server.join().unwrap();
        assert!(request.contains("role_name=reader&account_id=12"), "{request}");
        assert!(request.to_lowercase().contains("x-amz-sso_bearer_token: token"), "{request}");
    }

    fn sign_in(start_url: &str) -> SignIn {
        let text = |text: &str| text.to_owned();
        SignIn {
            profile: text("ann"),
            start_url: text(start_url),
            region: text("eu-1"),
            account: text("12"),
            role: text("reader"),
        }
    }

    #[test]
    fn those_who_have_signed_in_get_credentials() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = folder.path().to_owned();
        let (answering, server) = service(
            "200 OK",
            "{\"roleCredentials\": {\"accessKeyId\": \"SIGNED\", \"secretAccessKey\": \"S\", \
             \"sessionToken\": \"T\", \"expiration\": 32472144000000}}",
        );
        let fetched = Fetched::by(Fetch::SignIn {
            sign_in: sign_in("https://us"),
            tokens,
            service: answering,
        });
        let error = get(&fetched).unwrap_err();
        assert!(error.to_string().contains("aws sso login --profile ann"), "{error}");
        for (name, url, end) in [
            ("old", "https://us", "2001-01-01T00:00:00Z"),
            ("other", "https://eu", "2999-01-01T00:00:00Z"),
            ("good", "https://us", "2999-01-01T00:00:00Z"),
        ] {
            let text = format!(
                "{{\"startUrl\": \"{url}\", \"accessToken\": \"{name}\", \"expiresAt\": \"{end}\"}}"
            );
            std::fs::write(folder.path().join(format!("{name}.json")), text).unwrap();
        }
        assert_eq!(get(&fetched).unwrap().key_id, "SIGNED");
        assert!(server.join().unwrap().to_lowercase().contains("_token: good"));
    }
}
