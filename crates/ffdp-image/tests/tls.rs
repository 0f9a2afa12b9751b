//! OME-Zarr from a server behind `https://` whose certificate is signed by an authority of its own, as in hospitals.
//!
//! `openssl` makes the authority, a server in Python hands out the golden images. Which authorities are trusted is a
//! matter of the process (`SSL_CERT_FILE`): the test starts itself once for each case.

#![cfg(feature = "https")]

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ffdp_image::io::images::read_volume;

/// Of Zarr 2 and 3, in chunks and in shards.
const IMAGES: [&str; 3] = ["2-lz4hc-0.zarr", "3-gzip.zarr", "3-shards.zarr"];

/// The addresses that a process of a case reads, in one word.
const ADDRESSES: &str = "FFDP_TLS_TEST_ADDRESSES";

/// Extensions of certificates; `openssl req` also asks for the section of the name, which `-subj` gives.
const OPENSSL: &str = "
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[server]
basicConstraints = CA:false
extendedKeyUsage = serverAuth
subjectAltName = IP:127.0.0.1, DNS:localhost
";

/// Arguments: the folder, the file to which each connection adds a line, and for TLS the certificate and its key.
/// Prints its port, and ends with its input.
const SERVER: &str = r#"
import functools, http.server, ssl, sys, threading

folder, log, *tls = sys.argv[1:]
context = None
if tls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*tls)

class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *arguments):
        pass

class Server(http.server.ThreadingHTTPServer):
    def get_request(self):
        connection, address = self.socket.accept()
        with open(log, "a") as file:
            file.write("connection\n")
        if context:
            connection = context.wrap_socket(connection, server_side=True)
        return connection, address

server = Server(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
"#;

struct Server {
    process: Child,
    port: u16,
    log: PathBuf,
}

impl Server {
    /// One that hands out the golden images; over TLS with a certificate and its key.
    fn start(log: PathBuf, certificate: &[PathBuf]) -> Self {
        let mut process = Command::new("python3")
            .args(["-c", SERVER])
            .args([golden(), log.clone()])
            .args(certificate)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let mut line = String::new();
        let output = process.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("readable");
        let port = line.trim().parse().expect("the server prints its port");
        Self { process, port, log }
    }

    /// How often somebody connected.
    fn connections(&self) -> usize {
        fs::read_to_string(&self.log).map_or(0, |text| text.lines().count())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/ome-zarr")
}

fn is_installed(program: &str, version: &str) -> bool {
    Command::new(program).arg(version).output().is_ok_and(|output| output.status.success())
}

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let output = command.current_dir(folder).args(arguments.split(' ')).output();
    let output = output.expect("openssl is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "openssl {arguments}: {errors}");
}

/// An authority, `NAME.pem` with its key.
fn make_authority(folder: &Path, name: &str) {
    openssl(
        folder,
        &format!(
            "req -x509 -newkey rsa:2048 -nodes -sha256 -days 2 -config openssl.cnf \
             -extensions authority -subj /CN={name} -keyout {name}.key -out {name}.pem"
        ),
    );
}

/// A process of its own that reads images, with that `SSL_CERT_FILE`, and what it says.
fn say(addresses: &[String], trusted: Option<&Path>) -> String {
    let mut command = Command::new(env::current_exe().expect("a program"));
    command.args(["--exact", TEST, "--nocapture"]).env(ADDRESSES, addresses.join(" "));
    command.env_remove("FFDP_SKIPPED_TESTS").env_remove("SSL_CERT_FILE");
    if let Some(file) = trusted {
        command.env("SSL_CERT_FILE", file);
    }
    let output = command.output().expect("the test starts itself");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{addresses:?}, {trusted:?}: {text}{errors}");
    text
}

/// In such a process: an image equals that of the folder, or is refused.
fn read(addresses: &str) {
    for address in addresses.split(' ') {
        let name = address.rsplit('/').next().expect("a word");
        match read_volume(address) {
            Ok(image) => {
                let here = read_volume(golden().join(name)).expect("readable");
                assert!(image == here, "{address} is another image than in the folder");
                println!("\nequal: {name}");
            }
            Err(reason) => println!("\nrefused: {reason}"),
        }
    }
}

/// The name of the function below.
const TEST: &str = "images_of_a_server_with_its_own_authority_are_read_if_that_is_trusted";

#[test]
fn images_of_a_server_with_its_own_authority_are_read_if_that_is_trusted() {
    if let Ok(addresses) = env::var(ADDRESSES) {
        return read(&addresses);
    }
    for (program, version) in [("openssl", "version"), ("python3", "--version")] {
        if !is_installed(program, version) {
            return ffdp_kit::testing::skipped(&format!("{program} is not installed"));
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    fs::write(at("openssl.cnf"), OPENSSL).expect("writable");
    make_authority(folder.path(), "authority");
    make_authority(folder.path(), "other");
    openssl(
        folder.path(),
        "req -new -newkey rsa:2048 -nodes -sha256 -config openssl.cnf -subj /CN=localhost \
         -keyout server.key -out server.csr",
    );
    openssl(
        folder.path(),
        "x509 -req -in server.csr -CA authority.pem -CAkey authority.key -CAcreateserial -sha256 \
         -days 2 -extfile openssl.cnf -extensions server -out server.pem",
    );
    let server = Server::start(at("trusted"), &[at("server.pem"), at("server.key")]);
    let address = |name: &str| format!("https://127.0.0.1:{}/{name}", server.port);
    let authority = at("authority.pem");

    // Among others in the file, and by the server's name as well as by its number.
    let both = at("both.pem");
    let texts = ["other.pem", "authority.pem"].map(|name| fs::read(at(name)).expect("there"));
    fs::write(&both, texts.concat()).expect("writable");
    for (trusted, host) in [(&authority, "127.0.0.1"), (&both, "localhost")] {
        let addresses = IMAGES.map(|name| address(name).replace("127.0.0.1", host));
        let text = say(&addresses, Some(trusted));
        for name in IMAGES {
            assert!(text.contains(&format!("equal: {name}")), "{host}, {name}: {text}");
        }
    }

    let absent = say(&[address("absent.zarr")], Some(&authority));
    assert!(absent.contains("absent.zarr"), "{absent}");
    assert!(absent.contains("neither zarr.json nor .zattrs"), "{absent}");

    // Not trusted: by nobody's word, and by the word of another authority than the file has. Said at once.
    let image = address("3-gzip.zarr");
    let other = at("other.pem");
    for (trusted, advice) in [(None, "name a PEM file"), (Some(&other), "add the certificate")] {
        let before = server.connections();
        let refused = say(std::slice::from_ref(&image), trusted.map(PathBuf::as_path));
        for part in [image.as_str(), "UnknownIssuer", advice, "SSL_CERT_FILE"] {
            assert!(refused.contains(part), "{trusted:?}, {part}: {refused}");
        }
        let named = trusted.map_or(String::new(), |file| file.display().to_string());
        assert!(refused.contains(&named), "{refused}");
        assert_eq!(server.connections() - before, 1, "{trusted:?}: asked again in vain");
    }

    // Files that nobody can be trusted by.
    fs::write(at("damaged.pem"), "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n")
        .expect("writable");
    let files = [
        ("missing.pem", "cannot be read"),
        ("server.key", "holds no certificate"),
        ("damaged.pem", "is damaged"),
    ];
    for (name, reason) in files {
        let before = server.connections();
        let refused = say(std::slice::from_ref(&image), Some(&at(name)));
        let named = at(name).display().to_string();
        for part in [image.as_str(), &named, reason, "SSL_CERT_FILE", "unset it"] {
            assert!(refused.contains(part), "{name}, {part}: {refused}");
        }
        assert_eq!(server.connections(), before, "{name}: a server was asked");
    }

    // A server that shows the authority's certificate as its own, as `openssl req -x509` makes them.
    let own = Server::start(at("own"), &[authority.clone(), at("authority.key")]);
    let address = format!("https://127.0.0.1:{}/3-gzip.zarr", own.port);
    let refused = say(std::slice::from_ref(&address), Some(&authority));
    for part in [address.as_str(), "signed by it (CA:FALSE)", "SSL_CERT_FILE"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }

    // Without encryption the file does not matter.
    let plain = Server::start(at("plain"), &[]);
    let address = format!("http://127.0.0.1:{}/3-gzip.zarr", plain.port);
    let text = say(&[address], Some(&at("missing.pem")));
    assert!(text.contains("equal: 3-gzip.zarr"), "{text}");
}
