//! A place in a program.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One frame of a host stack; as much of it as is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The function's demangled name.
    pub function: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line in it, from 1.
    pub line: Option<u32>,
    /// The path of the program or library.
    pub module: Option<String>,
    /// The call's address in the module as its symbol table counts, such as `addr2line` takes; the
    /// plain address where there is no module.
    #[serde(serialize_with = "hex", deserialize_with = "unhex", default)]
    pub offset: Option<u64>,
}

/// The module of Python's frames.
const PYTHON: &str = "python";

impl Frame {
    /// A frame of a Python function.
    #[must_use]
    pub fn python(function: String, file: String, line: Option<u32>) -> Self {
        Self {
            function: Some(function),
            file: Some(file),
            line,
            module: Some(PYTHON.to_owned()),
            offset: None,
        }
    }

    /// Whether it is a frame of a Python function.
    #[must_use]
    pub fn is_python(&self) -> bool {
        self.offset.is_none() && self.module.as_deref() == Some(PYTHON)
    }

    /// The module's file name.
    #[must_use]
    pub fn module_name(&self) -> Option<&str> {
        self.module.as_deref().map(file_name)
    }

    /// What names this place from one build to the next: the function and the file's
    /// name; where neither is known, the module and the offset in it.
    #[must_use]
    pub fn place(&self) -> String {
        match (&self.function, &self.file) {
            (None, None) => format!(
                "{}+{:#x}",
                self.module_name().unwrap_or("?"),
                self.offset.unwrap_or(0)
            ),
            (function, file) => format!(
                "{} in {}",
                function.as_deref().unwrap_or("?"),
                file.as_deref().map_or("?", file_name)
            ),
        }
    }
}

/// What comes after the last slash.
fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn hex<S: Serializer>(offset: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    offset
        .map(|offset| format!("{offset:#x}"))
        .serialize(serializer)
}

fn unhex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| {
        text.strip_prefix("0x")
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or_else(|| serde::de::Error::custom(format!("offset {text:?} is not hexadecimal")))
    })
    .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_written_in_hexadecimal() {
        let frame = Frame {
            module: Some("/lib/libx.so".to_owned()),
            offset: Some(0x1f),
            ..Frame::default()
        };
        let text = serde_json::to_string(&frame).unwrap();
        assert_eq!(
            text,
            r#"{"function":null,"file":null,"line":null,"module":"/lib/libx.so","offset":"0x1f"}"#
        );
        assert_eq!(serde_json::from_str::<Frame>(&text).unwrap(), frame);
        assert!(serde_json::from_str::<Frame>(&text.replace("0x1f", "1f")).is_err());
        assert_eq!(frame.place(), "libx.so+0x1f");
    }

    #[test]
    fn a_python_frame_is_told_from_a_module_of_that_name() {
        let frame = Frame::python("f".to_owned(), "/a/f.py".to_owned(), Some(3));
        assert!(frame.is_python());
        assert_eq!(frame.place(), "f in f.py");
        let frame = Frame {
            module: Some("python".to_owned()),
            offset: Some(0),
            ..Frame::default()
        };
        assert!(!frame.is_python());
    }

    #[test]
    fn a_place_outlives_line_changes_and_moves() {
        let frame = |file: &str, line| Frame {
            function: Some("f".to_owned()),
            file: Some(file.to_owned()),
            line: Some(line),
            ..Frame::default()
        };
        assert_eq!(frame("/a/x.cu", 1).place(), frame("/b/x.cu", 9).place());
        assert_ne!(frame("/a/x.cu", 1).place(), frame("/a/y.cu", 1).place());
    }
}
