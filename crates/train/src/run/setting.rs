//! What one key of the run file is, and how its text becomes a value and back.
//!
//! A section is declared once with `section!`: name, type, default and one line of doc per key. The struct, its
//! defaults, parsing, printing and help all come from that declaration.

use std::collections::BTreeMap;
use toml::Value;

/// One key of the run file, for help and for tables.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// The section it stands in.
    pub section: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// What it says about the run, in one line.
    pub doc: &'static str,
    /// What may be written: `a whole number`, ``one of `relu`, `elu` ``, …
    pub expected: String,
    /// The words that may be written, when they are few.
    pub words: &'static [&'static str],
    /// Its value when nothing is written, as TOML.
    pub default: String,
}

impl Key {
    /// What it says about the run, and the words it may have.
    pub fn comment(&self) -> String {
        match self.words {
            [] => self.doc.to_string(),
            words => format!("{}: {}", self.doc, words.join(", ")),
        }
    }
}

/// A type that a key of the run file can have.
pub(super) trait Setting: Sized + Clone {
    /// What may be written.
    fn expected() -> String;

    /// The words that may be written, when they are few.
    fn words() -> &'static [&'static str] {
        &[]
    }

    /// The value of `value`, unless it is of another kind or out of bounds.
    fn read(value: &Value) -> Option<Self>;

    /// The value of a `text` that is no TOML, or TOML of another kind.
    fn read_bare(text: &str) -> Option<Self> {
        Self::read(&Value::String(text.to_string()))
    }

    /// The value as TOML.
    fn show(&self) -> Value;
}

impl Setting for String {
    fn expected() -> String {
        "a text".into()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_string)
    }

    fn show(&self) -> Value {
        Value::String(self.clone())
    }
}

impl Setting for bool {
    fn expected() -> String {
        "`true` or `false`".into()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_bool()
    }

    fn show(&self) -> Value {
        Value::Boolean(*self)
    }
}

impl Setting for f64 {
    fn expected() -> String {
        "a number".into()
    }

    fn read(value: &Value) -> Option<Self> {
        let number = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))?;
        number.is_finite().then_some(number)
    }

    fn show(&self) -> Value {
        Value::Float(*self)
    }
}

impl Setting for u64 {
    fn expected() -> String {
        "a whole number, 0 or more".into()
    }

    fn read(value: &Value) -> Option<Self> {
        u64::try_from(value.as_integer()?).ok()
    }

    fn show(&self) -> Value {
        Value::Integer(i64::try_from(*self).unwrap_or(i64::MAX))
    }
}

impl Setting for usize {
    fn expected() -> String {
        u64::expected()
    }

    fn read(value: &Value) -> Option<Self> {
        usize::try_from(value.as_integer()?).ok()
    }

    fn show(&self) -> Value {
        (*self as u64).show()
    }
}

impl Setting for Vec<i64> {
    fn expected() -> String {
        "a list of whole numbers such as `[15, 10]`".into()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(Value::as_integer).collect()
    }

    fn show(&self) -> Value {
        Value::Array(self.iter().map(|&number| Value::Integer(number)).collect())
    }
}

impl Setting for Vec<String> {
    fn expected() -> String {
        "a list of words such as `[\"train\", \"edges\"]`".into()
    }

    fn read(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(|word| word.as_str().map(str::to_string)).collect()
    }

    fn read_bare(text: &str) -> Option<Self> {
        Some(text.split(',').map(|word| word.trim().to_string()).filter(|word| !word.is_empty()).collect())
    }

    fn show(&self) -> Value {
        Value::Array(self.iter().cloned().map(Value::String).collect())
    }
}

/// Names and values that somebody else knows the meaning of.
impl Setting for BTreeMap<String, String> {
    fn expected() -> String {
        "names and values such as `{ tau = 0.2 }`".into()
    }

    fn read(value: &Value) -> Option<Self> {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => Some(value.to_string()),
            _ => None,
        };
        value.as_table()?.iter().map(|(name, value)| Some((name.clone(), text(value)?))).collect()
    }

    fn read_bare(text: &str) -> Option<Self> {
        let pair =
            |pair: &str| pair.split_once('=').map(|(name, value)| (name.trim().into(), value.trim().into()));
        text.split(',').filter(|text| !text.trim().is_empty()).map(pair).collect()
    }

    fn show(&self) -> Value {
        Value::Table(self.iter().map(|(name, value)| (name.clone(), Value::String(value.clone()))).collect())
    }
}

/// `` `a`, `b` `` for a message.
pub(super) fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// Declares a type whose values are a few words.
macro_rules! choice {
    ($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $word_doc:literal])* $variant:ident = $word:literal,)* }) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[doc = $word_doc])* $variant,)*
        }

        impl $name {
            /// The words a user writes, in the order of the variants.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// The word a user writes for it.
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }

        impl $crate::run::setting::Setting for $name {
            fn expected() -> String {
                format!("one of {}", $crate::run::setting::quoted(Self::WORDS))
            }

            fn words() -> &'static [&'static str] {
                Self::WORDS
            }

            fn read(value: &toml::Value) -> Option<Self> {
                match value.as_str()? { $($word => Some(Self::$variant),)* _ => None }
            }

            fn show(&self) -> toml::Value {
                toml::Value::String(self.word().to_string())
            }
        }
    };
}

/// Declares a section of the run file: `/// doc` `key: Type = default,` per key.
macro_rules! section {
    ($(#[doc = $doc:literal])* $section:ident = $name:literal {
        $(#[doc = $key_doc:literal] $key:ident: $type:ty = $default:expr,)*
    }) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $section {
            $(#[doc = $key_doc] pub $key: $type,)*
        }

        impl Default for $section {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl $crate::run::setting::Section for $section {
            fn name(&self) -> &'static str {
                $name
            }

            fn keys(&self) -> Vec<$crate::run::setting::Key> {
                use $crate::run::setting::Setting;
                let default = Self::default();
                vec![$($crate::run::setting::Key {
                    section: $name,
                    name: stringify!($key),
                    doc: $key_doc.trim(),
                    expected: <$type>::expected(),
                    words: <$type>::words(),
                    default: default.$key.show().to_string(),
                },)*]
            }

            fn set(&mut self, key: &str, text: &str, bare: bool) -> $crate::run::setting::Outcome {
                match key {
                    $(stringify!($key) => $crate::run::setting::assign(&mut self.$key, text, bare),)*
                    _ => $crate::run::setting::Outcome::NoSuchKey,
                }
            }

            fn show(&self, key: &str) -> Option<String> {
                use $crate::run::setting::Setting;
                match key {
                    $(stringify!($key) => Some(self.$key.show().to_string()),)*
                    _ => None,
                }
            }
        }
    };
}

pub(super) use {choice, section};

/// What came of giving a key a value.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    /// It has it now.
    Set,
    /// The section has no such key.
    NoSuchKey,
    /// The text is of another kind than what is expected; if words are, these.
    WrongValue(String, &'static [&'static str]),
}

/// A section of the run file, whatever its keys.
pub(super) trait Section {
    /// The name between the brackets.
    fn name(&self) -> &'static str;

    /// Its keys, in the order of printing.
    fn keys(&self) -> Vec<Key>;

    /// Gives `key` the value written as `text`; `bare` allows texts without quotation marks.
    fn set(&mut self, key: &str, text: &str, bare: bool) -> Outcome;

    /// The value of `key` as TOML.
    fn show(&self, key: &str) -> Option<String>;
}

/// Puts the value written as `text` into `slot`.
pub(super) fn assign<T: Setting>(slot: &mut T, text: &str, bare: bool) -> Outcome {
    let written = text.parse::<Value>().ok().and_then(|value| T::read(&value));
    match written.or_else(|| if bare { T::read_bare(text) } else { None }) {
        Some(value) => {
            *slot = value;
            Outcome::Set
        }
        None => Outcome::WrongValue(T::expected(), T::words()),
    }
}
