//! PTX text: `.entry` parameters, and `.global`/`.const` variables, of the module's outer scope.

use super::{Global, Image, place};

/// Adds what `text` declares.
pub(super) fn read(text: &str, image: &mut Image) {
    let text = without_comments(text);
    let mut depth = 0usize;
    let mut rest = text.as_str();
    while let Some(at) = rest.find(['{', '}', ';']) {
        let statement = &rest[..at];
        match &rest[at..=at] {
            "{" => {
                if depth == 0 {
                    read_entry(statement, image);
                }
                // An initialiser's braces count as well: they too end before the next statement.
                if depth == 0 && statement.contains('=') {
                    read_global(statement, image);
                }
                depth += 1;
            }
            "}" => depth = depth.saturating_sub(1),
            _ if depth == 0 => {
                read_global(statement, image);
                read_entry(statement, image);
            }
            _ => {}
        }
        rest = &rest[at + 1..];
    }
}

fn without_comments(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("/*") {
        out.push_str(&rest[..at]);
        rest = rest[at..]
            .find("*/")
            .map_or("", |end| &rest[at + end + 2..]);
    }
    out.push_str(rest);
    out.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

fn read_entry(statement: &str, image: &mut Image) {
    let Some(at) = statement.find(".entry") else {
        return;
    };
    let signature = &statement[at + ".entry".len()..];
    let name = signature
        .split(['(', '\n'])
        .next()
        .unwrap_or_default()
        .trim();
    let list = signature
        .find('(')
        .and_then(|open| Some(&signature[open + 1..open + signature[open..].find(')')?]));
    let mut end = 0;
    let params = list
        .unwrap_or_default()
        .split(',')
        .filter(|param| param.contains(".param"))
        .filter_map(|param| {
            let (_, size, align) = declaration(param)?;
            Some(place(&mut end, size, align))
        })
        .collect();
    if !name.is_empty() {
        image.kernels.entry(name.to_owned()).or_insert(params);
    }
}

fn read_global(statement: &str, image: &mut Image) {
    let declared = statement.split('=').next().unwrap_or_default();
    // Directives such as `.version` have no semicolon and come before the first declaration.
    let Some(at) = [".global", ".const"]
        .iter()
        .find_map(|space| declared.rfind(space))
    else {
        return;
    };
    if declared[..at].contains(".extern")
        || declared.contains(".func")
        || declared.contains(".entry")
    {
        return;
    }
    if let Some((name, size, _)) = declaration(&declared[at..]) {
        image.globals.entry(name.to_owned()).or_insert(Global {
            size,
            init: Vec::new(),
        });
    }
}

/// Name, size and alignment of `.space .align 8 .b8 name[16]`.
fn declaration(text: &str) -> Option<(&str, usize, usize)> {
    let mut align = 0;
    let mut element = None;
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        if word == ".align" {
            // A pointer parameter states the alignment of what it points to after its type.
            let value = words.next()?.parse().ok()?;
            if element.is_none() {
                align = value;
            }
        } else if let Some(size) = element_size(word) {
            element = Some(size);
        } else if !word.starts_with('.') {
            let (name, extent) = word.split_once('[').unwrap_or((word, ""));
            let element = element?;
            let count = if extent.is_empty() {
                1
            } else {
                extent.trim_end_matches([']', '}']).parse().ok()?
            };
            return Some((name, element * count, align.max(element)));
        }
    }
    None
}

fn element_size(word: &str) -> Option<usize> {
    let bits = word
        .strip_prefix(['.'])
        .and_then(|word| word.strip_prefix(['u', 's', 'b', 'f']))?;
    match bits.parse::<usize>() {
        Ok(bits @ (8 | 16 | 32 | 64 | 128)) => Some(bits / 8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Param;
    use super::*;

    const TEXT: &str = "
.version 8.0
.target sm_75
.address_size 64
.const .align 4 .u32 c;
.global .align 4 .b8 g[64];
.global .attribute(.managed) .align 4 .u32 m;
.global .align 4 .b8 table[8] = {1, 0, 0, 0, 2, 0, 0, 0};
.extern .global .align 4 .b8 elsewhere[4];
/* .visible .entry commented(.param .u64 x) { } */
.visible .entry saxpy(
	.param .u64 .ptr .global .align 16 saxpy_param_0,
	.param .f32 saxpy_param_1, // a, by value
	.param .align 8 .b8 saxpy_param_2[16]
)
.maxntid 128, 1, 1
{
	.reg .f32 %f<4>;
	ld.param.u64 %rd1, [saxpy_param_0];
	{ mov.u32 %r1, 1; }
	ret;
}
.visible .entry none()
{ ret; }
.weak .entry _Z1kPi(.param .u64 p){ ret; }
";

    #[test]
    fn entries_and_their_layouts() {
        let mut image = Image::default();
        read(TEXT, &mut image);
        let names: Vec<&String> = image.kernels.keys().collect();
        assert_eq!(names, ["_Z1kPi", "none", "saxpy"]);
        assert_eq!(
            image.kernels["saxpy"],
            [
                Param { offset: 0, size: 8 },
                Param { offset: 8, size: 4 },
                Param {
                    offset: 16,
                    size: 16
                }
            ]
        );
        assert!(image.kernels["none"].is_empty());
    }

    #[test]
    fn variables_and_their_sizes() {
        let mut image = Image::default();
        read(TEXT, &mut image);
        let sizes: Vec<(&str, usize)> = image
            .globals
            .iter()
            .map(|(name, global)| (name.as_str(), global.size))
            .collect();
        assert_eq!(sizes, [("c", 4), ("g", 64), ("m", 4), ("table", 8)]);
    }
}
