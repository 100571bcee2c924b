//! What the tools of AWS read for S3: variables of the environment, which come first, and the
//! profile that `AWS_PROFILE` names in their files.

mod credentials;
mod files;
mod profile;

use std::sync::Arc;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredential};
use object_store::client::{HttpClient, HttpConnector};
use object_store::{ClientOptions, CredentialProvider, Error, Result, StaticCredentialProvider};

use self::credentials::{Fetch, Fetched, Service, form_of};
use self::files::Files;
use self::profile::{Role, Source, source_of};
use super::http::Connector;

type Provider = Arc<dyn CredentialProvider<Credential = AwsCredential>>;

/// Settings by their names in the files, and the variables that say the same.
const SETTINGS: [(&str, [&str; 2], AmazonS3ConfigKey); 2] = [
    ("region", ["AWS_REGION", "AWS_DEFAULT_REGION"], AmazonS3ConfigKey::Region),
    ("endpoint_url", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT"], AmazonS3ConfigKey::Endpoint),
];

/// Adds to `builder` what the files say, except what the environment says.
pub(super) fn added_to(builder: AmazonS3Builder) -> Result<AmazonS3Builder> {
    let files = Files::of_this_process();
    let chosen = files.variable("AWS_PROFILE");
    let profile = chosen.as_deref().unwrap_or("default");
    let section = files.profile(profile);
    if section.is_none() && chosen.is_none() {
        return Ok(builder);
    }
    let section = section.unwrap_or_default();
    let mut builder = builder;
    for (name, variables, key) in SETTINGS {
        let is_said = variables.iter().any(|variable| files.variable(variable).is_some());
        if let Some(value) = section.get(name).filter(|_| !is_said) {
            builder = builder.with_config(key, value);
        }
    }
    let is_said = |name: &str| files.variable(name).is_some();
    let has_role_of_environment =
        is_said("AWS_WEB_IDENTITY_TOKEN_FILE") && is_said("AWS_ROLE_ARN") && chosen.is_none();
    if is_said("AWS_ACCESS_KEY_ID") || has_role_of_environment {
        return Ok(builder);
    }
    match source_of(&files, profile).map_err(wrong)? {
        Source::Elsewhere => Ok(builder),
        Source::WebIdentity { token_file, role, session } => {
            let builder = builder
                .with_config(AmazonS3ConfigKey::WebIdentityTokenFile, token_file)
                .with_config(AmazonS3ConfigKey::RoleArn, role);
            Ok(match session {
                Some(session) => builder.with_config(AmazonS3ConfigKey::RoleSessionName, session),
                None => builder,
            })
        }
        source => {
            let region = builder.get_config_value(&AmazonS3ConfigKey::Region);
            let region = region.unwrap_or_else(|| "us-east-1".to_owned());
            Ok(builder.with_credentials(provider(&files, source, &region)?))
        }
    }
}

/// What gives the credentials of `source`.
fn provider(files: &Files<'_>, source: Source, region: &str) -> Result<Provider> {
    Ok(match source {
        Source::Keys { id, secret, token } => {
            Arc::new(StaticCredentialProvider::new(AwsCredential {
                key_id: id,
                secret_key: secret,
                token,
            }))
        }
        Source::Process(command) => Fetched::by(Fetch::Process(command)),
        Source::Role(role) => {
            let Role { arn, session, external_id, seconds, source } = *role;
            let form = form_of(&[
                ("Action", Some("AssumeRole")),
                ("Version", Some("2011-06-15")),
                ("RoleArn", Some(&arn)),
                ("RoleSessionName", Some(&session)),
                ("ExternalId", external_id.as_deref()),
                ("DurationSeconds", seconds.as_deref()),
            ]);
            let base = provider(files, source, region)?;
            let service = service(files, "AWS_ENDPOINT_URL_STS", || {
                format!("https://sts.{region}.amazonaws.com/")
            })?;
            Fetched::by(Fetch::Role { base, service, region: region.to_owned(), form })
        }
        Source::SignIn(sign_in) => {
            let service = service(files, "AWS_ENDPOINT_URL_SSO", || {
                format!("https://portal.sso.{}.amazonaws.com", sign_in.region)
            })?;
            let tokens = files.usual("sso/cache").unwrap_or_default();
            Fetched::by(Fetch::SignIn { sign_in, tokens, service })
        }
        Source::WebIdentity { .. } | Source::Elsewhere => {
            // The bucket does not matter.
            let builder = match source {
                Source::WebIdentity { token_file, role, .. } => AmazonS3Builder::new()
                    .with_config(AmazonS3ConfigKey::WebIdentityTokenFile, token_file)
                    .with_config(AmazonS3ConfigKey::RoleArn, role)
                    .with_config(AmazonS3ConfigKey::Region, region),
                _ => AmazonS3Builder::from_env(),
            };
            let store = builder.with_bucket_name("any").with_http_connector(Connector).build()?;
            Arc::clone(store.credentials())
        }
    })
}

/// A service at the URL that a variable names, or at its usual one.
fn service(files: &Files<'_>, variable: &str, usual: impl FnOnce() -> String) -> Result<Service> {
    let url = files.variable(variable).unwrap_or_else(usual);
    // The user has typed http.
    let options = ClientOptions::new().with_allow_http(url.starts_with("http://"));
    let client: HttpClient = Connector.connect(&options)?;
    Ok(Service { client, url: url.trim_end_matches('/').to_owned() })
}

fn wrong(why: String) -> Error {
    Error::Generic { store: "credentials", source: why.into() }
}
