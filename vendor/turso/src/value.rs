//! What statements are given and give.

use crate::{Error, Result};

/// A value of any type.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Blob(Vec<u8>),
    Integer(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_string())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Blob(bytes)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

/// A type that values can be.
pub trait FromValue: Sized {
    /// `None` for a value of another type.
    fn from_value(value: Value) -> Option<Self>;
}

impl FromValue for String {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Blob(bytes) => Some(bytes),
            _ => None,
        }
    }
}

impl FromValue for i64 {
    fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Integer(number) => Some(number),
            _ => None,
        }
    }
}

/// The values of a row.
#[derive(Clone, Debug)]
pub struct Row(pub(crate) Vec<Value>);

impl Row {
    /// The value of a column.
    ///
    /// # Errors
    /// When there is none, or it has another type.
    pub fn get<T: FromValue>(&self, column: usize) -> Result<T> {
        let value = self.0.get(column).cloned().and_then(T::from_value);
        value.ok_or_else(|| Error::Error(format!("column {column} has no such value")))
    }
}

/// Values for the places ?1, ?2, .. of a statement.
pub trait IntoParams {
    /// In order.
    fn into_params(self) -> Vec<Value>;
}

impl IntoParams for () {
    fn into_params(self) -> Vec<Value> {
        Vec::new()
    }
}

macro_rules! params_of_tuples {
    ($($name:ident)+) => {
        impl<$($name: Into<Value>),+> IntoParams for ($($name,)+) {
            #[allow(non_snake_case)]
            fn into_params(self) -> Vec<Value> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    };
}

params_of_tuples!(A);
params_of_tuples!(A B);
params_of_tuples!(A B C);
params_of_tuples!(A B C D);
