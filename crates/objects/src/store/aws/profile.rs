//! Where the credentials of a profile come from.

use super::files::{Files, Section};

/// A profile that builds on more others than that builds on itself.
const MOST_PROFILES: u32 = 8;

/// Where credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The files have them.
    Keys { id: String, secret: String, token: Option<String> },
    /// A command prints them.
    Process(String),
    /// The security token service gives them for others.
    Role(Box<Role>),
    /// It gives them for a token in a file.
    WebIdentity { token_file: String, role: String, session: Option<String> },
    /// The user signs in, and AWS gives them.
    SignIn(SignIn),
    /// The environment, a container or an instance gives them.
    Elsewhere,
}

/// A role, and who may take it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) arn: String,
    pub(super) session: String,
    pub(super) external_id: Option<String>,
    pub(super) seconds: Option<String>,
    pub(super) source: Source,
}

/// A role of an account, which the user gets after signing in at a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SignIn {
    pub(super) profile: String,
    pub(super) start_url: String,
    pub(super) region: String,
    pub(super) account: String,
    pub(super) role: String,
}

/// Where the credentials of `profile` come from. An error says what the files lack.
pub(super) fn source_of(files: &Files<'_>, profile: &str) -> Result<Source, String> {
    find(files, profile, MOST_PROFILES)
}

fn find(files: &Files<'_>, profile: &str, left: u32) -> Result<Source, String> {
    let left = left.checked_sub(1);
    let left = left.ok_or_else(|| format!("the profile {profile} builds on itself"))?;
    let missing = || format!("no profile is called {profile} in ~/.aws/config and its like");
    let section = files.profile(profile).ok_or_else(missing)?;
    let said = |key: &str| section.get(key).filter(|value| !value.is_empty()).cloned();
    if let Some(arn) = said("role_arn") {
        return role(files, profile, &section, arn, left);
    }
    if said("sso_session").is_some() || said("sso_start_url").is_some() {
        return sign_in(files, profile, &section).map(Source::SignIn);
    }
    Ok(keys(&section)
        .or_else(|| said("credential_process").map(Source::Process))
        .unwrap_or(Source::Elsewhere))
}

fn keys(section: &Section) -> Option<Source> {
    let said = |key: &str| section.get(key).filter(|value| !value.is_empty()).cloned();
    Some(Source::Keys {
        id: said("aws_access_key_id")?,
        secret: said("aws_secret_access_key")?,
        token: said("aws_session_token"),
    })
}

fn role(
    files: &Files<'_>,
    profile: &str,
    section: &Section,
    arn: String,
    left: u32,
) -> Result<Source, String> {
    let said = |key: &str| section.get(key).filter(|value| !value.is_empty()).cloned();
    if said("mfa_serial").is_some() {
        return Err(format!(
            "the profile {profile} asks for a code of a device, which larder cannot; take the role \
             with another program, and name that with credential_process"
        ));
    }
    if let Some(token_file) = said("web_identity_token_file") {
        let session = said("role_session_name");
        return Ok(Source::WebIdentity { token_file, role: arn, session });
    }
    let source = match (said("source_profile"), said("credential_source")) {
        // Its own keys take the role.
        (Some(other), _) if other == profile => keys(section)
            .ok_or_else(|| format!("the profile {profile} is its own source, and has no keys"))?,
        (Some(other), _) => find(files, &other, left)?,
        (None, Some(_)) => Source::Elsewhere,
        (None, None) => {
            return Err(format!(
                "the profile {profile} has a role_arn, and neither source_profile nor \
                 credential_source says who takes the role"
            ));
        }
    };
    let session = said("role_session_name").unwrap_or_else(|| "larder".to_owned());
    let (external_id, seconds) = (said("external_id"), said("duration_seconds"));
    Ok(Source::Role(Box::new(Role { arn, session, external_id, seconds, source })))
}

fn sign_in(files: &Files<'_>, profile: &str, section: &Section) -> Result<SignIn, String> {
    let session = match section.get("sso_session") {
        Some(name) => {
            let missing = || format!("there is no section [sso-session {name}]");
            Some(files.session(name).ok_or_else(missing)?)
        }
        None => None,
    };
    let said = |key: &str| {
        let found = session.as_ref().and_then(|it| it.get(key)).or_else(|| section.get(key));
        found.cloned().ok_or_else(|| format!("the profile {profile} lacks {key}"))
    };
    Ok(SignIn {
        profile: profile.to_owned(),
        start_url: said("sso_start_url")?,
        region: said("sso_region")?,
        account: said("sso_account_id")?,
        role: said("sso_role_name")?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::files::tests::with_files;
    use super::*;

    const CONFIG: &str = "
[profile process]
credential_process = pass aws
[profile role]
role_arn = arn:role
source_profile = keys
external_id = 7
[profile chain]
role_arn = arn:chain
source_profile = role
[profile own]
role_arn = arn:own
source_profile = own
[profile circle]
role_arn = arn:circle
source_profile = circle2
[profile circle2]
role_arn = arn:circle
source_profile = circle
[profile machine]
role_arn = arn:machine
credential_source = Ec2InstanceMetadata
[profile pod]
role_arn = arn:pod
web_identity_token_file = /token
[profile device]
role_arn = arn:device
mfa_serial = arn:mfa
source_profile = keys
[profile alone]
role_arn = arn:alone
[profile nothing]
region = eu
[profile sign]
sso_session = us
sso_account_id = 12
sso_role_name = reader
[sso-session us]
sso_start_url = https://us
sso_region = eu-1
[profile signless]
sso_session = gone
";

    const CREDENTIALS: &str = "
[keys]
aws_access_key_id = ID
aws_secret_access_key = SECRET
[own]
aws_access_key_id = OWN
aws_secret_access_key = SECRET
";

    fn source(profile: &str) -> Result<Source, String> {
        with_files(CONFIG, CREDENTIALS, |files| source_of(files, profile))
    }

    fn keys(id: &str) -> Source {
        Source::Keys { id: id.to_owned(), secret: "SECRET".to_owned(), token: None }
    }

    fn role(profile: &str) -> Role {
        let Source::Role(role) = source(profile).unwrap() else { panic!("{profile}") };
        *role
    }

    #[test]
    fn credentials_come_from_where_the_profile_says() {
        assert_eq!(source("keys").unwrap(), keys("ID"));
        assert_eq!(source("process").unwrap(), Source::Process("pass aws".to_owned()));
        assert_eq!(source("nothing").unwrap(), Source::Elsewhere);
        let taken = role("role");
        assert_eq!((taken.arn.as_str(), taken.session.as_str()), ("arn:role", "larder"));
        assert_eq!((taken.external_id.as_deref(), taken.source.clone()), (Some("7"), keys("ID")));
        assert_eq!(role("chain").source, Source::Role(Box::new(taken)));
        assert_eq!(role("own").source, keys("OWN"));
        assert_eq!(role("machine").source, Source::Elsewhere);
        assert!(matches!(source("pod").unwrap(), Source::WebIdentity { .. }));
        let Source::SignIn(sign_in) = source("sign").unwrap() else { panic!("it is another") };
        assert_eq!((sign_in.start_url.as_str(), sign_in.region.as_str()), ("https://us", "eu-1"));
        assert_eq!((sign_in.account.as_str(), sign_in.role.as_str()), ("12", "reader"));
    }

    #[test]
    fn what_leads_nowhere_is_named() {
        for (profile, why) in [
            ("none", "no profile is called none"),
            ("circle", "builds on itself"),
            ("device", "credential_process"),
            ("alone", "source_profile"),
            ("signless", "[sso-session gone]"),
        ] {
            let error = source(profile).unwrap_err();
            assert!(error.contains(why), "{profile}: {error}");
        }
    }
}
