//! As much JSON as the vectors need: a reader, a writer, and access to what was read.

use std::fmt::{self, Display};

/// A JSON value. Integers and floats are kept apart, as they are written.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads one value; what is wrong with the text otherwise.
    pub fn parse(text: &str) -> Result<Json, String> {
        let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
        let value = reader.value()?;
        match reader.peek() {
            None => Ok(value),
            Some(_) => reader.fail("the end"),
        }
    }

    /// The value of a key. Panics where there is none: the vectors say which keys a case has.
    pub fn get(&self, key: &str) -> &Json {
        match self {
            Json::Object(pairs) => pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
        .unwrap_or_else(|| panic!("no key {key:?} in {self}"))
    }

    pub fn is_null(&self) -> bool {
        *self == Json::Null
    }

    pub fn list(&self) -> &[Json] {
        match self {
            Json::List(items) => items,
            _ => panic!("{self} is no list"),
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Json::Text(text) => text,
            _ => panic!("{self} is no text"),
        }
    }

    /// A float; those that are not finite are written as text.
    pub fn float(&self) -> f64 {
        match self {
            Json::Int(n) => *n as f64,
            Json::Float(x) => *x,
            _ => self.text().parse().unwrap_or_else(|_| panic!("{self} is no number")),
        }
    }

    pub fn size(&self) -> usize {
        match self {
            Json::Int(n) if *n >= 0 => *n as usize,
            _ => panic!("{self} is no integer from 0 on"),
        }
    }

    /// An integer that may need 64 bits is written as text.
    pub fn u64(&self) -> u64 {
        self.text().parse().unwrap_or_else(|_| panic!("{self} is no 64-bit integer"))
    }

    pub fn floats(&self) -> Vec<f64> {
        self.list().iter().map(Json::float).collect()
    }

    pub fn sizes(&self) -> Vec<usize> {
        self.list().iter().map(Json::size).collect()
    }

    pub fn rows(&self) -> Vec<Vec<f64>> {
        self.list().iter().map(Json::floats).collect()
    }
}

impl From<usize> for Json {
    fn from(n: usize) -> Self {
        Json::Int(n as i64)
    }
}

impl From<u32> for Json {
    fn from(n: u32) -> Self {
        Json::Int(n.into())
    }
}

impl From<bool> for Json {
    fn from(b: bool) -> Self {
        Json::Bool(b)
    }
}

impl From<f64> for Json {
    fn from(x: f64) -> Self {
        if x.is_finite() {
            Json::Float(x)
        } else {
            Json::Text(x.to_string())
        }
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Json::Text(text.to_string())
    }
}

impl<T: Into<Json>> From<Vec<T>> for Json {
    fn from(items: Vec<T>) -> Self {
        Json::List(items.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Json>> From<Option<T>> for Json {
    fn from(value: Option<T>) -> Self {
        value.map_or(Json::Null, Into::into)
    }
}

/// An object from its pairs.
pub fn object<const N: usize>(pairs: [(&str, Json); N]) -> Json {
    Json::Object(pairs.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
}

impl Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Json::Null => write!(f, "null"),
            Json::Bool(b) => write!(f, "{b}"),
            Json::Int(n) => write!(f, "{n}"),
            Json::Float(x) => write!(f, "{x:?}"), // the shortest text that reads back as the same float
            Json::Text(text) => write_text(f, text),
            Json::List(items) => {
                write!(f, "[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i > 0 { "," } else { "" })?;
                }
                write!(f, "]")
            }
            Json::Object(pairs) => {
                write!(f, "{{")?;
                for (i, (key, value)) in pairs.iter().enumerate() {
                    write!(f, "{}", if i > 0 { "," } else { "" })?;
                    write_text(f, key)?;
                    write!(f, ":{value}")?;
                }
                write!(f, "}}")
            }
        }
    }
}

fn write_text(f: &mut fmt::Formatter, text: &str) -> fmt::Result {
    write!(f, "\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
            c => write!(f, "{c}")?,
        }
    }
    write!(f, "\"")
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn fail<T>(&self, wanted: &str) -> Result<T, String> {
        Err(format!("byte {} of the JSON text: {wanted} was expected", self.at))
    }

    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, text: &str) -> bool {
        self.peek();
        let found = self.bytes[self.at..].starts_with(text.as_bytes());
        self.at += if found { text.len() } else { 0 };
        found
    }

    fn value(&mut self) -> Result<Json, String> {
        match self.peek() {
            Some(b'{') => self.items("{", "}", Reader::pair).map(Json::Object),
            Some(b'[') => self.items("[", "]", Reader::value).map(Json::List),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ if self.take("null") => Ok(Json::Null),
            _ if self.take("true") => Ok(Json::Bool(true)),
            _ if self.take("false") => Ok(Json::Bool(false)),
            _ => self.fail("a value"),
        }
    }

    fn items<T>(
        &mut self,
        open: &str,
        close: &str,
        item: fn(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let mut items = Vec::new();
        self.take(open);
        while !self.take(close) {
            if !items.is_empty() && !self.take(",") {
                return self.fail("a comma");
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    fn pair(&mut self) -> Result<(String, Json), String> {
        let key = self.string()?;
        if !self.take(":") {
            return self.fail("a colon");
        }
        Ok((key, self.value()?))
    }

    fn number(&mut self) -> Result<Json, String> {
        let start = self.at;
        while matches!(self.bytes.get(self.at), Some(b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).expect("ASCII");
        match text.parse() {
            Ok(n) => Ok(Json::Int(n)),
            Err(_) => text.parse().map(Json::Float).or_else(|_| self.fail("a number")),
        }
    }

    fn string(&mut self) -> Result<String, String> {
        if !self.take("\"") {
            return self.fail("a string");
        }
        let mut out = Vec::new();
        loop {
            let byte = self.bytes.get(self.at).copied();
            self.at += 1;
            match byte {
                None => return self.fail("the end of a string"),
                Some(b'"') => return String::from_utf8(out).or_else(|_| self.fail("UTF-8")),
                Some(b'\\') => out.extend(self.escaped()?.to_string().bytes()),
                Some(byte) => out.push(byte),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, String> {
        let byte = self.bytes.get(self.at).copied();
        self.at += 1;
        Ok(match byte {
            Some(c @ (b'"' | b'\\' | b'/')) => c.into(),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let digits = self.bytes.get(self.at..self.at + 4).and_then(|hex| std::str::from_utf8(hex).ok());
                self.at += 4;
                let code = digits.and_then(|hex| u32::from_str_radix(hex, 16).ok());
                return code.and_then(char::from_u32).map_or_else(|| self.fail("a character"), Ok);
            }
            _ => return self.fail("an escape"),
        })
    }
}
