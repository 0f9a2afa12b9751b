//! The statements that keep and find values, told apart by their words.

use crate::files::{Entry, Files};
use crate::value::{Row, Value};
use crate::{Error, Result};

/// What a statement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Tables need not be made.
    CreateTable,
    DropEntries,
    MetaGet,
    MetaSet,
    /// A value under a key, unless there is one that was not imported.
    Insert,
    Replace,
    Select,
    Scan,
    Purge,
    PurgeKey,
}

impl Statement {
    /// # Errors
    /// When it is none of them.
    pub fn of(sql: &str) -> Result<Self> {
        let words: Vec<&str> = sql.split_whitespace().collect();
        let sql = words.join(" ");
        let begins = |with: &str| sql.starts_with(with);
        let has = |part: &str| sql.contains(part);
        let by_key = has("WHERE namespace = ?1 AND key = ?2");
        let by_namespace = sql.ends_with("WHERE namespace = ?1");
        Ok(match () {
            () if begins("CREATE TABLE IF NOT EXISTS") => Self::CreateTable,
            () if sql == "DROP TABLE IF EXISTS entries" => Self::DropEntries,
            () if sql == "SELECT v FROM meta WHERE k = ?1" => Self::MetaGet,
            () if begins("INSERT INTO meta (k, v) VALUES (?1, ?2)") => Self::MetaSet,
            () if begins("INSERT INTO entries (namespace, key, value, origin)") => {
                match (has("WHERE"), has("WHERE entries.origin = 1 AND excluded.origin = 0")) {
                    (false, _) => Self::Replace,
                    (_, true) => Self::Insert,
                    _ => return Err(unknown(&sql)),
                }
            }
            () if begins("SELECT value FROM entries") && by_key => Self::Select,
            () if begins("SELECT key, value, origin FROM entries") && by_namespace => Self::Scan,
            () if begins("DELETE FROM entries") && by_key => Self::PurgeKey,
            () if begins("DELETE FROM entries") && by_namespace => Self::Purge,
            () => return Err(unknown(&sql)),
        })
    }

    /// How many values it has changed.
    pub fn execute(self, files: &Files, params: &[Value]) -> Result<u64> {
        match (self, params) {
            (Self::CreateTable, []) => Ok(0),
            (Self::DropEntries, []) => files.remove_all().map(|()| 0),
            (Self::MetaSet, [Value::Text(key), Value::Text(value)]) => {
                files.set_meta(key, value).map(|()| 1)
            }
            (
                Self::Insert | Self::Replace,
                [Value::Text(namespace), Value::Blob(key), Value::Blob(value), Value::Integer(origin)],
            ) => {
                let entry = Entry { key: key.clone(), value: value.clone(), origin: *origin };
                let there = match self {
                    Self::Insert => files.get(namespace, key),
                    _ => None,
                };
                match there {
                    Some(there) if there.origin != 1 || *origin != 0 => Ok(0),
                    _ => files.put(namespace, &entry).map(|()| 1),
                }
            }
            (Self::Purge, [Value::Text(namespace)]) => files.remove_namespace(namespace).map(|()| 1),
            (Self::PurgeKey, [Value::Text(namespace), Value::Blob(key)]) => {
                files.remove(namespace, key).map(|()| 1)
            }
            _ => Err(Error::Error(format!("{self:?} is given other values"))),
        }
    }

    /// What it asks for.
    pub fn query(self, files: &Files, params: &[Value]) -> Result<Vec<Row>> {
        match (self, params) {
            (Self::MetaGet, [Value::Text(key)]) => {
                Ok(files.meta(key).into_iter().map(|value| Row(vec![value.into()])).collect())
            }
            (Self::Select, [Value::Text(namespace), Value::Blob(key)]) => {
                let found = files.get(namespace, key).into_iter();
                Ok(found.map(|entry| Row(vec![entry.value.into()])).collect())
            }
            (Self::Scan, [Value::Text(namespace)]) => {
                let row = |entry: Entry| {
                    Row(vec![entry.key.into(), entry.value.into(), entry.origin.into()])
                };
                Ok(files.all(namespace).into_iter().map(row).collect())
            }
            _ => Err(Error::Error(format!("{self:?} is given other values"))),
        }
    }
}

fn unknown(sql: &str) -> Error {
    Error::Error(format!("this stand-in for a data base does not understand {sql:?}"))
}
