//! The authorities whose certificates of servers are trusted: those of the system, which
//! `SSL_CERT_FILE` and `SSL_CERT_DIR` may name, and those in the file that `AWS_CA_BUNDLE` names. A
//! system without any, such as an empty container, gets those of Mozilla.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use larder_platform::errno::in_words;
use ureq::tls::{Certificate, PemItem, RootCerts, parse_pem};

const BUNDLE: &str = "AWS_CA_BUNDLE";

/// Variables that say where those of the system are.
const OF_SYSTEM: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The authorities for this process, which reads them once. An error names the variable that is
/// wrong.
pub(super) fn trusted() -> Result<RootCerts, String> {
    static TRUSTED: OnceLock<RootCerts> = OnceLock::new();
    if let Some(trusted) = TRUSTED.get() {
        return Ok(trusted.clone());
    }
    let trusted = read_all()?;
    Ok(TRUSTED.get_or_init(|| trusted).clone())
}

fn read_all() -> Result<RootCerts, String> {
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let system = rustls_native_certs::load_native_certs();
    let of_system = system.certs.iter().map(|it| Certificate::from_der(it).to_owned()).collect();
    let errors = system.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    chosen(variable, of_system, &errors)
}

fn chosen(
    variable: impl Fn(&str) -> Option<OsString>,
    of_system: Vec<Certificate<'static>>,
    errors: &str,
) -> Result<RootCerts, String> {
    let mut all = of_system;
    let named = OF_SYSTEM.into_iter().find(|name| variable(name).is_some());
    if let Some(name) = named.filter(|_| all.is_empty()) {
        return Err(format!("{name}: no certificate is there: {errors}"));
    }
    if let Some(path) = variable(BUNDLE) {
        all.extend(read(Path::new(&path)).map_err(|why| format!("{BUNDLE}: {why}"))?);
    }
    Ok(if all.is_empty() { RootCerts::WebPki } else { RootCerts::Specific(Arc::new(all)) })
}

fn read(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let shown = path.display();
    let text = std::fs::read(path).map_err(|error| format!("{shown}: {}", in_words(&error)))?;
    let certificates = parse_pem(&text).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(Ok(certificate)),
        Ok(_) => None,
        Err(error) => Some(Err(format!("{shown}: {error}"))),
    });
    let certificates: Vec<_> = certificates.collect::<Result<_, _>>()?;
    if certificates.is_empty() {
        return Err(format!("{shown}: no certificate is in it"));
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";

    fn one(byte: u8) -> Certificate<'static> {
        Certificate::from_der(&[byte]).to_owned()
    }

    #[test]
    fn the_bundle_is_trusted_beside_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bundle.pem");
        let bundle = |name: &str| (name == BUNDLE).then(|| path.clone().into_os_string());
        assert!(chosen(bundle, vec![one(1)], "").unwrap_err().starts_with(BUNDLE));
        std::fs::write(&path, "nothing").unwrap();
        assert!(chosen(bundle, vec![one(1)], "").unwrap_err().starts_with(BUNDLE));
        std::fs::write(&path, PEM.repeat(2)).unwrap();
        let RootCerts::Specific(all) = chosen(bundle, vec![one(1)], "").unwrap() else { panic!() };
        assert_eq!(all.len(), 3);
    }

    #[test]
    fn without_a_system_there_are_authorities_unless_the_user_names_some() {
        assert!(matches!(chosen(|_| None, Vec::new(), "").unwrap(), RootCerts::WebPki));
        for name in OF_SYSTEM {
            let named = |asked: &str| (asked == name).then(|| "/nowhere".into());
            let error = chosen(named, Vec::new(), "it is missing").unwrap_err();
            assert!(error.starts_with(name) && error.contains("missing"), "{error}");
            assert!(matches!(chosen(named, vec![one(1)], "").unwrap(), RootCerts::Specific(_)));
        }
    }
}
