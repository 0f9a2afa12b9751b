//! Where the files of an OME-Zarr are: in a folder, or behind an address (`http://`, and `https://` with the feature).
//!
//! A file behind an address is read whole or in part (`Range`). Nothing lists its folder, so that the metadata and the
//! chunks are asked for by name. What fails on the way (no connection, a server that is busy) is tried again.

use std::fs::File;
use std::io::{self, Cursor, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::Duration;

use ureq::Agent;
use ureq::http::Response;
#[cfg(feature = "https")]
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Body, Error as Http};

use super::trust;
use crate::io::zarr_name::address;

/// A file, whole; `None` if it is not there.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match address(path) {
        None => std::fs::read(path).map(Some).or_else(missing),
        Some(address) => get(address, None),
    }
}

/// A file from its start.
pub fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    match address(path) {
        None => Ok(Box::new(File::open(path)?)),
        Some(address) => {
            let bytes = get(address, None)?.ok_or(ErrorKind::NotFound)?;
            Ok(Box::new(Cursor::new(bytes)))
        }
    }
}

/// So many bytes of a file, which has to be there and as long.
pub fn read_part(path: &Path, start: u64, length: u64) -> io::Result<Vec<u8>> {
    let short = || io::Error::other("the shard is shorter than its index says");
    if let Some(address) = address(path) {
        let bytes = get(address, Some((start, length)))?.ok_or(ErrorKind::NotFound)?;
        return if bytes.len() as u64 == length { Ok(bytes) } else { Err(short()) };
    }
    let mut file = File::open(path)?;
    // Before anything of that length is allocated.
    if start.checked_add(length).is_none_or(|end| file.metadata().map_or(0, |m| m.len()) < end) {
        return Err(short());
    }
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = vec![0; length as usize];
    file.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// How long a file is; `None` if it is not there.
pub fn length(path: &Path) -> io::Result<Option<u64>> {
    let Some(address) = address(path) else {
        return std::fs::metadata(path).map(|file| Some(file.len())).or_else(missing);
    };
    let Some(response) = patiently(address, |agent| agent.head(address).call())? else {
        return Ok(None);
    };
    let length = response.headers().get("content-length").and_then(|text| text.to_str().ok());
    let length = length.and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| io::Error::other("the server does not say how long the file is"))
}

/// Whether a file is there.
pub fn exists(path: &Path) -> io::Result<bool> {
    match address(path) {
        None => Ok(path.exists()),
        // Not its length, which servers do not say of what they pack on the way.
        Some(address) => Ok(patiently(address, |agent| agent.head(address).call())?.is_some()),
    }
}

/// A file that is not there is no error.
fn missing<T>(reason: io::Error) -> io::Result<Option<T>> {
    match reason.kind() {
        ErrorKind::NotFound => Ok(None),
        _ => Err(reason),
    }
}

/// What an address has, from `start` on so many bytes.
fn get(address: &str, part: Option<(u64, u64)>) -> io::Result<Option<Vec<u8>>> {
    let Some(mut response) = patiently(address, |agent| {
        let request = agent.get(address);
        match part {
            Some((start, length)) => {
                let last = start.saturating_add(length).saturating_sub(1);
                request.header("Range", format!("bytes={start}-{last}")).call()
            }
            None => request.call(),
        }
    })?
    else {
        return Ok(None);
    };
    let is_part = response.status() == 206;
    let body = response.body_mut().with_config().limit(u64::MAX).read_to_vec();
    let mut bytes = body.map_err(|reason| failed(&reason))?;
    if let (Some((start, length)), false) = (part, is_part) {
        // A server that sends the whole file whatever is asked for.
        let end = bytes.len().min(start.saturating_add(length) as usize);
        bytes = bytes.get(start as usize..end).unwrap_or_default().to_vec();
    }
    Ok(Some(bytes))
}

/// How long an answer may take to begin.
const PATIENCE: Duration = Duration::from_secs(30);
/// Waits before another try.
const WAITS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(2)];

/// What asks all servers, and why it must not ask those behind `https://`, if it must not.
fn client() -> &'static (Agent, Option<String>) {
    static CLIENT: OnceLock<(Agent, Option<String>)> = OnceLock::new();
    CLIENT.get_or_init(|| {
        let config = Agent::config_builder()
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE));
        #[cfg(feature = "https")]
        let (config, distrust) = {
            let (roots, distrust) = match trust::roots(trust::file().as_deref()) {
                Ok(roots) => (roots, None),
                // Nobody is trusted then, were a server of `http://` to point to one of `https://`.
                Err(reason) => (RootCerts::from([]), Some(reason)),
            };
            (config.tls_config(TlsConfig::builder().root_certs(roots).build()), distrust)
        };
        #[cfg(not(feature = "https"))]
        let distrust = None;
        (Agent::new_with_config(config.build()), distrust)
    })
}

/// An answer; `None` if the file is not there, as servers of objects also say it (403).
fn patiently(
    address: &str,
    ask: impl Fn(&Agent) -> Result<Response<Body>, Http>,
) -> io::Result<Option<Response<Body>>> {
    let (agent, distrust) = client();
    if let Some(reason) = distrust.as_ref().filter(|_| address.starts_with("https://")) {
        return Err(io::Error::new(ErrorKind::NotConnected, reason.as_str()));
    }
    let mut waits = WAITS.into_iter();
    loop {
        let reason = match ask(agent) {
            Ok(response) => return Ok(Some(response)),
            Err(Http::StatusCode(403 | 404 | 410)) => return Ok(None),
            Err(reason) => reason,
        };
        let may_pass = match &reason {
            Http::StatusCode(status) => matches!(status, 408 | 429 | 500..),
            // What the other side of TLS says is wrong, as its certificate: so it will be the next time.
            Http::Io(reason) => reason.kind() != ErrorKind::InvalidData,
            Http::Timeout(_) | Http::ConnectionFailed => true,
            _ => false,
        };
        match waits.next().filter(|_| may_pass) {
            Some(wait) => sleep(wait),
            None => return Err(failed(&reason)),
        }
    }
}

/// Without the address, which the callers name as they name a file.
fn failed(reason: &Http) -> io::Error {
    let help = match reason {
        Http::TlsRequired => " (this program was built without the feature `https`)".to_string(),
        reason => trust::help(reason).unwrap_or_default(),
    };
    // Not one of the kinds that mean a damaged file.
    io::Error::new(ErrorKind::NotConnected, format!("{reason}{help}"))
}
