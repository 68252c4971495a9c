//! Pages of the documentation that are carried out: the files in them are written, their commands are run in order, and
//! the output that a page shows is compared.
//!
//! A block whose preceding line ends with a name in backticks and a colon is a file. Blocks `sh` are commands; the
//! block `text` behind one has lines of its output, in which `…` stands for anything.

/// A fenced block of a page.
struct Block<'a> {
    language: &'a str,
    /// The file of this name has the content.
    file: Option<&'a str>,
    content: &'a str,
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once("\n```") {
        let (language, after) = after.split_once('\n').unwrap();
        let (content, after) = after.split_once("\n```\n").unwrap_or_else(|| panic!("an open block: {after}"));
        let line = before.trim_end().lines().last().unwrap_or_default();
        let file = line.strip_suffix("`:").and_then(|line| line.rsplit('`').next());
        blocks.push(Block { language, file, content });
        rest = after;
        // The next block may begin in the next line.
        if let Some(at) = page.len().checked_sub(rest.len() + 1) {
            rest = &page[at..];
        }
    }
    blocks
}

/// Carries a page out: `write` gets the name and the content of each file, `shell` runs commands and returns their
/// output. Returns what each block of commands printed.
#[track_caller]
pub fn carry_out(page: &str, write: impl Fn(&str, &str), shell: impl Fn(&str) -> String) -> Vec<String> {
    let mut printed: Vec<String> = Vec::new();
    for Block { language, file, content } in blocks(page) {
        match (language, file) {
            ("sh", _) => printed.push(shell(content)),
            ("text", _) => assert_printed(content, printed.last().unwrap()),
            (_, Some(file)) => write(file, content),
            _ => {}
        }
    }
    printed
}

/// Each line of the page is a line of the output; `…` stands for anything.
#[track_caller]
fn assert_printed(expected: &str, output: &str) {
    for pattern in expected.lines() {
        let parts: Vec<&str> = pattern.split('…').map(str::trim).collect();
        let matches = |line: &str| {
            let mut rest = Some(line.trim());
            for part in &parts {
                rest = rest.and_then(|rest| rest.split_once(part)).map(|(_, rest)| rest);
            }
            rest.is_some() && line.trim().starts_with(parts[0])
        };
        assert!(output.lines().any(matches), "{pattern:?} is not in\n{output}");
    }
}
