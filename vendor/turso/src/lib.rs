//! A stand-in for `turso`, without a data base.
//!
//! CubeCL 0.11.3 keeps compiled kernels in a data base if its feature `persistence` is on: values under a key in a namespace,
//! written once, read by their key. For that it brings an SQL engine of some 110 packages. This crate has the names of the engine that
//! `cubecl-environment` mentions and understands the statements that it makes for keeping and finding values; any other is an
//! error, upon which CubeCL goes on without. [`files`] keeps the values: a file for each, in a folder beside the place
//! where the data base would be.
//!
//! It is used through `[patch.crates-io]` and therefore only inside this workspace.

mod files;
mod statement;
mod value;

use std::fmt;
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use files::Files;
use statement::Statement;
pub use value::{FromValue, IntoParams, Row, Value};

/// What went wrong.
#[derive(Debug)]
pub enum Error {
    /// Another process holds the lock. Files have none.
    Busy(String),
    /// As [`Error::Busy`].
    BusySnapshot(String),
    /// A file could not be read or written.
    IoError(io::ErrorKind, &'static str),
    /// A statement that is not understood, a value of another type.
    Error(String),
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(what) | Self::BusySnapshot(what) | Self::Error(what) => f.write_str(what),
            Self::IoError(kind, what) => write!(f, "{what}: {kind}"),
        }
    }
}

impl std::error::Error for Error {}

/// How transactions begin.
pub mod transaction {
    /// When the writer is taken; files have none.
    #[derive(Clone, Copy, Debug)]
    pub enum TransactionBehavior {
        /// At the first write.
        Deferred,
        /// At once.
        Immediate,
    }
}

/// Opens a data base.
#[derive(Debug)]
pub struct Builder {
    folder: PathBuf,
    read_only: bool,
}

impl Builder {
    /// The one at a path: a folder of the same name with the ending `kept`.
    pub fn new_local(path: &str) -> Self {
        Self { folder: Path::new(path).with_extension("kept"), read_only: false }
    }

    /// Files need no such thing.
    pub fn experimental_multiprocess_wal(self, _: bool) -> Self {
        self
    }

    /// Files need no such thing.
    pub fn experimental_vacuum(self, _: bool) -> Self {
        self
    }

    /// Whether nothing is written.
    pub fn read_only(self, read_only: bool) -> Self {
        Self { read_only, ..self }
    }

    /// # Errors
    /// When the folder cannot be made, or is not there and may not be.
    pub async fn build(self) -> Result<Database> {
        Ok(Database { files: Files::open(self.folder, self.read_only)? })
    }
}

/// A folder of values.
#[derive(Clone, Debug)]
pub struct Database {
    files: Files,
}

impl Database {
    /// # Errors
    /// None here.
    pub fn connect(&self) -> Result<Connection> {
        Ok(Connection { files: self.files.clone() })
    }
}

/// What statements are given to.
#[derive(Debug)]
pub struct Connection {
    files: Files,
}

impl Connection {
    /// Nothing is waited for.
    pub fn busy_timeout(&self, _: Duration) -> Result<()> {
        Ok(())
    }

    /// There is nothing to be set.
    pub async fn pragma_query(&self, _: &str, _: impl FnMut(&Row) -> Result<()>) -> Result<()> {
        Ok(())
    }

    /// Does what a statement says, and says how many values it has changed.
    ///
    /// # Errors
    /// When the statement is not understood, or a file cannot be written.
    pub async fn execute(&self, sql: impl AsRef<str>, params: impl IntoParams) -> Result<u64> {
        Statement::of(sql.as_ref())?.execute(&self.files, &params.into_params())
    }

    /// What a statement asks for.
    ///
    /// # Errors
    /// As [`Connection::execute`].
    pub async fn query(&self, sql: impl AsRef<str>, params: impl IntoParams) -> Result<Rows> {
        let rows = Statement::of(sql.as_ref())?.query(&self.files, &params.into_params())?;
        Ok(Rows { rows: rows.into_iter() })
    }

    /// Statements one by one: each is whole by itself.
    pub async fn transaction_with_behavior(
        &mut self,
        _: transaction::TransactionBehavior,
    ) -> Result<Transaction<'_>> {
        Ok(Transaction { connection: self })
    }
}

/// Statements that a data base would do as one.
#[derive(Debug)]
pub struct Transaction<'a> {
    connection: &'a Connection,
}

impl Transaction<'_> {
    /// All is done already.
    pub async fn commit(self) -> Result<()> {
        Ok(())
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

/// What a query found.
#[derive(Debug)]
pub struct Rows {
    rows: std::vec::IntoIter<Row>,
}

impl Rows {
    /// The next row.
    pub async fn next(&mut self) -> Result<Option<Row>> {
        Ok(self.rows.next())
    }
}
