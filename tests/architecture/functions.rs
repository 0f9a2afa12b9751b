//! Functions are short, and what travels together into one has a name.

use std::fs;
use std::path::Path;

use super::{is_test, rust_files, segment};

/// Lines of a function, from `fn` to its closing brace. A kernel, which reads from top to bottom, may have more.
const MOST_LINES: usize = 60;

/// A function of a source text.
#[derive(Debug, PartialEq)]
struct Function {
    name: String,
    /// Its first line, from 1.
    line: usize,
    /// To its closing brace; 1 without a body of several lines.
    lines: usize,
    /// Parameters whose type is a tuple.
    tuples: usize,
}

/// The functions of a text that rustfmt has laid out: a body of several lines ends at the first `}` with the indentation
/// of its `fn`. Kernels, and what is compiled for tests only, are left out.
fn functions(source: &str) -> Vec<Function> {
    let lines: Vec<&str> = source.lines().collect();
    // Attributes and comments: the lines above an item, as far as nothing else ends there.
    let has = |at: usize, attribute: &str| {
        let above = lines[..at].iter().rev();
        let mut own = above.take_while(|line| !line.is_empty() && !line.ends_with(['{', '}', ';']));
        own.any(|line| line.trim_start().starts_with(attribute))
    };
    let end = |at: usize| {
        let indentation = lines[at].len() - lines[at].trim_start().len();
        let brace = format!("{}}}", &lines[at][..indentation]);
        (at..lines.len()).find(|&end| lines[end] == brace).unwrap_or(lines.len())
    };
    let (mut found, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        if lines[at].ends_with('{') && has(at, "#[cfg(test)]") {
            at = end(at);
        } else if let Some(name) = function(lines[at]) {
            // Without a body, or with one on the same line, a brace or semicolon ends it.
            let last = (at..lines.len()).find(|&k| lines[k].ends_with(['{', '}', ';']));
            if let Some(last) = last.filter(|_| !has(at, "#[cube")) {
                let lines_of_body = if lines[last].ends_with('{') { end(at) + 1 - at } else { 1 };
                let tuples = tuple_parameters(&lines[at..]);
                found.push(Function { name, line: at + 1, lines: lines_of_body, tuples });
            }
        }
        at += 1;
    }
    found
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<String> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let mut words = before.split_whitespace();
    let is_item = words.all(|word| {
        let is_visibility = word.starts_with("pub") || word.ends_with(')');
        is_visibility || ["const", "async", "unsafe", "extern", "\"C\""].contains(&word)
    });
    segment(after).filter(|_| is_item)
}

/// How many parameters of the function that these lines begin with are tuples of several values, or references to one.
/// Tuples within other types, as those of closures, do not count, nor does `()`.
fn tuple_parameters(lines: &[&str]) -> usize {
    let code =
        lines.iter().take(MOST_LINES).map(|line| line.split("//").next().unwrap_or("").trim());
    // An arrow has no bracket.
    let code = code.collect::<Vec<_>>().join(" ").replace("->", " ");
    let Some((_, after)) = code.split_once("fn ") else { return 0 };
    let after = after.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
    let after = if after.starts_with('<') { enclosed(after).1 } else { after };
    let types = parts(enclosed(after).0, ',').into_iter().map(|parameter| {
        // After a pattern, whose fields may have names of their own; none for `self`.
        parts(&parameter.replace("::", ".."), ':').get(1).cloned().unwrap_or_default()
    });
    types.filter(|of| is_tuple(of)).count()
}

/// Whether a type is a tuple of several values, or a reference to one.
fn is_tuple(of: &str) -> bool {
    let mut of = of.trim_start();
    while let Some(referenced) = of.strip_prefix('&') {
        let words = referenced.trim_start().split_inclusive(' ');
        let is_before = |word: &&str| word.starts_with('\'') || *word == "mut ";
        let before: usize = words.take_while(is_before).map(str::len).sum();
        of = &referenced.trim_start()[before..];
    }
    of.starts_with('(') && parts(enclosed(of).0, ',').len() > 1
}

/// What is in the bracket that a text begins with, and what follows it.
fn enclosed(text: &str) -> (&str, &str) {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (text.get(1..at).unwrap_or(""), &text[at + c.len_utf8()..]);
        }
    }
    ("", "")
}

/// The parts of a text between separators outside of all brackets; the last one, if there is something.
fn parts(text: &str, separator: char) -> Vec<String> {
    let (mut depth, mut parts) = (0, vec![String::new()]);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' | '>' => depth -= 1,
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if depth > 0 || c != separator => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// The functions of all crates, outside of tests, each with its file.
fn all_functions() -> Vec<(String, Function)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let mut found = Vec::new();
    for path in rust_files(&crates) {
        let relative = path.strip_prefix(&crates).expect("found below it");
        if !relative.components().any(|part| part.as_os_str() == "src") || is_test(relative) {
            continue;
        }
        let functions = functions(&fs::read_to_string(&path).expect("source files are UTF-8"));
        let file = relative.display().to_string();
        found.extend(functions.into_iter().map(|function| (file.clone(), function)));
    }
    // Guards the walk itself: no functions would pass.
    assert!(found.len() > 5000, "only {} functions were found", found.len());
    found
}

#[test]
fn functions_are_short() {
    let all = all_functions().into_iter();
    let long = all.filter(|(_, function)| function.lines > MOST_LINES);
    let long: Vec<String> = long
        .map(|(file, Function { name, line, lines, .. })| {
            format!("{file}:{line}: {name} has {lines} lines")
        })
        .collect();
    assert!(long.is_empty(), "functions of over {MOST_LINES} lines:\n{}", long.join("\n"));
}

#[test]
fn functions_take_no_tuples() {
    let all = all_functions().into_iter();
    let with_tuples = all.filter(|(_, function)| function.tuples > 0);
    let with_tuples: Vec<String> = with_tuples
        .map(|(file, Function { name, line, tuples, .. })| {
            format!("{file}:{line}: {name} takes {tuples}")
        })
        .collect();
    // Kernels, whose comptime tuples are indices, are no functions here.
    assert!(
        with_tuples.is_empty(),
        "functions that take tuples; a struct names what travels together:\n{}",
        with_tuples.join("\n")
    );
}

#[test]
fn tuples_are_counted_where_they_are_parameters() {
    let tuples = |source: &str| {
        let found = functions(source).into_iter();
        found.map(|function| function.tuples).collect::<Vec<_>>()
    };
    for (expected, source) in [
        (0, "fn f() {}\n"),
        (0, "fn f((): (), [a, b]: [u8; 2], (c): (u8)) -> (u8, u8) {}\n"),
        (0, "fn f<F: Fn((u8, u8)) -> u8>(&self, f: F, g: impl Fn(u8, (u8, u8))) where F: A {}\n"),
        (0, "fn f(all: &[(u8, u8)], one: Option<(u8, u8)>, g: a::B<(u8, u8)>, h: fn(u8, u8));\n"),
        (0, "fn f(Pair { a: (x, y), b }: Pair, c: Box<dyn Fn(&u8) -> (u8, u8)>) {\n}\n"),
        (0, "fn f(\n    a: u8, // (b, c): (u8, u8),\n) {\n}\n"),
        (1, "fn f((a, b): (u8, u8), c: u8) {}\n"),
        (
            1,
            "pub fn f<'a, const N: usize>(\n    &self,\n    pair: &'a mut (u8, [u8; N]),\n) {\n}\n",
        ),
        (2, "fn f(a::B { c }: a::B, d: (u8, u8), (e, mut f): (&'a [u8], impl Fn(u8) -> u8));\n"),
    ] {
        assert_eq!(tuples(source), [expected], "{source}");
    }
    assert_eq!(tuples("#[cube]\nfn kernel(#[comptime] ends: (usize, usize)) {\n}\n"), []);
}

#[test]
fn functions_are_counted_from_their_first_line_to_their_last() {
    let of = |lines: usize| format!("{}}}\n", "    x();\n".repeat(lines - 2));
    let counted = |source: &str| {
        let found = functions(source).into_iter();
        let several = found.filter(|f| f.lines > 1);
        several.map(|f| (f.name, f.line, f.lines)).collect::<Vec<_>>()
    };
    let long = format!("/// Doc.\npub(in crate::a) const fn long() {{\n{}", of(MOST_LINES + 1));
    assert_eq!(counted(&long), [("long".to_string(), 2, MOST_LINES + 1)]);
    // Declarations, one-line functions and types of functions; a signature of several lines counts.
    let source = "trait T {\n    fn declared(\n        f: fn(u8) -> u8,\n    ) -> u8;\n    fn one() {}\n}\n\
                  unsafe fn several<F>(\n    f: F,\n) -> u8\nwhere\n    F: Fn(u8),\n{\n    // fn no() {\n}\n";
    assert_eq!(counted(source), [("several".to_string(), 7, 8)]);
    let kernel = format!("#[cube(launch)]\n#[expect(\n    long\n)]\nfn kernel() {{\n{}", of(61));
    assert_eq!(counted(&kernel), []);
    let test =
        format!("#[cfg(test)]\nmod tests {{\n    fn f() {{\n    }}\n}}\nfn after() {{\n{}", of(4));
    assert_eq!(counted(&test), [("after".to_string(), 6, 4)]);
}
