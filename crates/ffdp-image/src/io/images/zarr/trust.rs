//! Whose certificates a server behind `https://` may show: those of the authorities of Mozilla's list, which is built
//! in, or, instead, those of the PEM file that the variable `SSL_CERT_FILE` names, as with OpenSSL and curl.
//!
//! A hospital's servers often have certificates of the hospital's own authority, which no list knows.

use std::path::PathBuf;

use ureq::Error as Http;
#[cfg(feature = "https")]
use ureq::tls::{PemItem, RootCerts, parse_pem};

const VARIABLE: &str = "SSL_CERT_FILE";

/// The file that the variable names; an empty variable names none.
pub fn file() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// The certificates that are trusted: those of a file, or the built-in ones without one.
///
/// # Errors
/// A sentence, for a file that cannot be read, is damaged or holds no certificate.
#[cfg(feature = "https")]
pub fn roots(file: Option<&std::path::Path>) -> Result<RootCerts, String> {
    let Some(file) = file else { return Ok(RootCerts::WebPki) };
    let refuse = |what: &str| {
        let fix = "name a PEM file with the certificate of the server's authority, or unset it";
        format!("the variable {VARIABLE} names {}, which {what}; {fix}", file.display())
    };
    let pem = std::fs::read(file).map_err(|why| refuse(&format!("cannot be read ({why})")))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(why) => return Err(refuse(&format!("is damaged ({why})"))),
        }
    }
    if certificates.is_empty() {
        return Err(refuse("holds no certificate (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(certificates.into())
}

/// What can be done about a certificate that was refused; nothing where the reason says it (another name, an end of
/// validity) and for other failures.
pub fn help(reason: &Http) -> Option<String> {
    // The error of rustls is inside one of the system, and its type is not ours to name.
    let reason = reason.to_string();
    if reason.contains("CaUsedAsEndEntity") {
        let what =
            "the server shows the certificate of an authority itself, which is refused even if";
        return Some(format!(
            "; {what} {VARIABLE} names it: give the server one that is signed by it (CA:FALSE)"
        ));
    }
    if !["UnknownIssuer", "BadSignature"].iter().any(|name| reason.contains(name)) {
        return None;
    }
    Some(match file() {
        Some(file) => format!(
            "; only authorities in {} are trusted, which the variable {VARIABLE} names: \
             add the certificate of the server's authority to it",
            file.display()
        ),
        None => format!(
            "; if the server's authority is your institution's own, name a PEM file with the \
             authority's certificate in the variable {VARIABLE}"
        ),
    })
}
