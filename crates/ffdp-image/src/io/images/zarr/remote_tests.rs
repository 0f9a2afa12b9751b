//! Images behind an address: a server in the test hands out a folder.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::image::{Geometry, Planes, Volume};
use crate::io::images::{
    PlaneReader, files, header, open_file, read_slab, read_volume, write_volume,
};

/// How a server answers.
#[derive(Clone, Copy, Default)]
struct Manners {
    /// Sends whole files whatever part is asked for.
    ignores_ranges: bool,
    /// Is busy for so many requests.
    busy: usize,
}

struct Server {
    address: String,
    bytes: Arc<AtomicUsize>,
}

impl Server {
    fn of(folder: &Path, manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("bound"));
        let (bytes, busy) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (folder, sent) = (folder.to_path_buf(), bytes.clone());
        // Ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (folder, sent, busy) = (folder.clone(), sent.clone(), busy.clone());
                thread::spawn(move || {
                    let is_busy = busy.fetch_add(1, Ordering::SeqCst) < manners.busy;
                    let _ = answer(stream, &folder, manners, is_busy, &sent);
                });
            }
        });
        Self { address, bytes }
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("{}/{name}", self.address))
    }

    fn sent(&self) -> usize {
        self.bytes.swap(0, Ordering::SeqCst)
    }
}

/// One request of a connection.
fn answer(
    mut stream: TcpStream,
    folder: &Path,
    manners: Manners,
    is_busy: bool,
    sent: &AtomicUsize,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().expect("a request")?;
    let mut range = None;
    for line in lines.by_ref() {
        let line = line?.to_ascii_lowercase();
        if let Some(bytes) = line.strip_prefix("range: bytes=") {
            let ends = bytes.split_once('-').expect("a range");
            let end = |text: &str| text.parse::<usize>().expect("a number");
            range = Some(end(ends.0)..end(ends.1) + 1);
        }
        if line.is_empty() {
            break;
        }
    }
    let mut words = request.split(' ');
    let (method, name) = (words.next().expect("a method"), words.next().expect("a name"));
    let content = fs::read(folder.join(name.trim_start_matches('/')));
    let (status, body) = match (content, range.filter(|_| !manners.ignores_ranges)) {
        _ if is_busy => ("503 Service Unavailable", Vec::new()),
        (Err(_), _) => ("404 Not Found", Vec::new()),
        (Ok(bytes), None) => ("200 OK", bytes),
        (Ok(bytes), Some(range)) => ("206 Partial Content", bytes[range].to_vec()),
    };
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n")?;
    if method == "GET" {
        sent.fetch_add(length, Ordering::SeqCst);
        stream.write_all(&body)?;
    }
    Ok(())
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/ome-zarr")
}

#[test]
fn images_behind_an_address_are_those_of_the_folder() {
    let ignores_ranges = Manners { ignores_ranges: true, ..Manners::default() };
    for manners in [Manners::default(), ignores_ranges] {
        let server = Server::of(&golden(), manners);
        // Of Zarr 2 and 3, in chunks and in shards, as others write them.
        for name in ["2-zlib-1.zarr", "2-lz4hc-0.zarr", "3-gzip.zarr", "3-shards.zarr"] {
            let (here, there) = (golden().join(name), server.path(name));
            assert_eq!(header(&there).expect("served"), header(&here).expect("there"), "{name}");
            let [here, there] = [here, there].map(|path| read_volume(path).expect("readable"));
            assert_eq!(there, here, "{name}");
        }
    }
}

#[test]
fn of_a_shard_behind_an_address_only_the_chunks_that_are_needed_travel() {
    let folder = tempfile::tempdir().expect("a folder");
    // More layers of chunks than are asked for, of which nothing is the same.
    let size = [70, 70, 200];
    let data = (0..size.iter().product::<usize>()).map(|i| (i * i % 8191) as f32).collect();
    let geometry = Geometry::new(size, [1.0; 3]).expect("a grid");
    let volume = Volume::new(data, geometry).expect("one for each voxel");
    write_volume(folder.path().join("image.zarr"), &volume).expect("writable");
    let server = Server::of(folder.path(), Manners::default());
    let there = server.path("image.zarr#0");
    read_volume(&there).expect("readable");
    let whole = server.sent();
    let slab = read_slab(&there, 199..200).expect("readable");
    assert_eq!(slab.data, volume.data[199 * 70 * 70..]);
    let part = server.sent();
    assert!(2 * part < whole, "{part} bytes of {whole} for one plane");
    let mut planes = PlaneReader::open(&there, None).expect("readable");
    for z in [0..3, 60..130, 5..6] {
        let expected = &volume.data[z.start * 70 * 70..z.end * 70 * 70];
        assert!(planes.read(z.clone()).expect("readable") == expected, "{z:?}");
    }
    let files = files(&there).expect("readable");
    assert_eq!(files, [server.path("image.zarr/zarr.json")]);
    let mut text = String::new();
    open_file(&files[0]).expect("there").read_to_string(&mut text).expect("JSON");
    assert!(text.contains("multiscales"));
}

#[test]
fn an_array_behind_an_address_without_any_chunk_is_refused_with_the_first_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image.zarr");
    // Two layers of shards; the second is the one that is left.
    let volume =
        Volume::new(vec![1.0; 20 * 20 * 40], Geometry::new([20, 20, 40], [1.0; 3]).unwrap());
    write_volume(&path, &volume.unwrap()).expect("writable");
    let server = Server::of(folder.path(), Manners::default());
    let there = server.path("image.zarr");
    fs::remove_file(path.join("0/c/0/0/0")).expect("written");
    let half = read_volume(&there).expect("one chunk is there");
    assert_eq!((half.data[0], half.data[20 * 20 * 40 - 1]), (0.0, 1.0));
    fs::remove_file(path.join("0/c/1/0/0")).expect("written");
    let refused = read_volume(&there).expect_err("no chunk").to_string();
    let first = format!("{}/0/c/0/0/0", there.display());
    assert!(refused.contains("no chunk at all") && refused.contains(&first), "{refused}");
}

#[test]
fn of_many_chunks_that_are_missing_there_is_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image.zarr");
    let volume = Volume::new(vec![1.0; 600], Geometry::new([1, 1, 600], [1.0; 3]).unwrap());
    write_volume(&path, &volume.unwrap()).expect("writable");
    let file = path.join("0/zarr.json");
    let text = fs::read_to_string(&file).expect("written").replace(['\n', ' '], "");
    fs::write(&file, text.replace("[32,1,1]", "[1,1,1]")).expect("writable");
    fs::remove_dir_all(path.join("0/c")).expect("written");
    let server = Server::of(folder.path(), Manners::default());
    let found = header(server.path("image.zarr")).expect("nothing says that it is empty");
    let asked = |warning: &String| {
        warning.contains("of 512 files of chunks") && warning.contains("/0/c/0/0/0")
    };
    assert!(found.warnings.iter().any(asked), "{:?}", found.warnings);
}

#[test]
fn a_busy_server_is_asked_again_and_a_missing_image_is_named() {
    let server = Server::of(&golden(), Manners { busy: 1, ..Manners::default() });
    let image = read_volume(server.path("3-gzip.zarr")).expect("after another try");
    assert_eq!(image, read_volume(golden().join("3-gzip.zarr")).expect("there"));
    let absent = server.path("absent.zarr");
    let refused = read_volume(&absent).expect_err("not there").to_string();
    assert!(refused.contains("neither zarr.json nor .zattrs"), "{refused}");
    let refused = write_volume(&absent, &image).expect_err("an address").to_string();
    assert!(refused.contains("absent.zarr"), "{refused}");
    // A port that nobody listens to.
    let port = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("bound");
    let nobody = read_volume(format!("http://{port}/image.zarr")).expect_err("nobody").to_string();
    assert!(nobody.contains(&format!("{port}")), "{nobody}");
}
